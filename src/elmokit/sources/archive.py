"""Models in zip files, such as those of the NLPL repository.

The number and the sizes of the entries are checked before extraction. `zipfile` never returns more
bytes than an entry declares, writes only inside the target directory, and creates no links.
"""

from __future__ import annotations

import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from elmokit.errors import WeightsError, output_error
from elmokit.sources import hdf5dir, manylangs, modeldir

# The largest model published in this format has 0.4 GB; with a million words it would have 2.5.
_MAX_BYTES = 16 << 30
# Weights hardly compress, and text about fourfold. Small archives are exempt.
_MAX_RATIO = 100
_FREE_BYTES = 16 << 20
_MAX_MEMBERS = 10_000
# bzip2 and LZMA can return gigabytes for one small read.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ADVICE = "If you trust the archive, unpack it and load the directory."


@contextmanager
def extracted(path: Path) -> Iterator[Path]:
    """Extract a zip file into a temporary directory and yield the directory of the model in it."""
    # Where open files cannot be deleted, memory-mapped files stay until the process ends.
    with tempfile.TemporaryDirectory(prefix="elmokit-", ignore_cleanup_errors=True) as temporary:
        root = Path(temporary)
        try:
            with zipfile.ZipFile(path) as archive:
                members = archive.infolist()
                _check_members(members, path)
                _extract(archive, members, root)
        # zipfile raises a RuntimeError for encrypted entries.
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
            raise WeightsError(
                f"{path} cannot be read as a zip file ({error}). It may be truncated; download it "
                "again."
            ) from error
        yield _only_model(root, [member.filename for member in members], path)


def _check_members(members: list[zipfile.ZipInfo], path: Path) -> None:
    limit = min(_MAX_BYTES, _FREE_BYTES + _MAX_RATIO * path.stat().st_size)
    size = sum(member.file_size for member in members)
    method = next((m.compress_type for m in members if m.compress_type not in _METHODS), None)
    if len(members) > _MAX_MEMBERS:
        problem = f"it contains {len(members):,} files; expected at most {_MAX_MEMBERS:,}"
    elif size > limit:
        problem = f"its contents have {size:,} bytes, more than {limit:,}, a plausible size"
    elif method is not None:
        problem = f"it uses compression method {method}; expected stored or deflated"
    else:
        return
    raise WeightsError(f"{path} is rejected: {problem}. {_ADVICE}")


def _extract(archive: zipfile.ZipFile, members: list[zipfile.ZipInfo], root: Path) -> None:
    try:
        for member in members:
            if not member.filename.startswith("__MACOSX"):  # attributes, named like the files
                archive.extract(member, root)
    except OSError as error:
        raise output_error(root, error) from error


def _only_model(root: Path, names: list[str], path: Path) -> Path:
    """Return the directory that contains a model."""
    folders = [root, *(entry for entry in root.rglob("*") if entry.is_dir())]
    models = [folder for folder in folders if _is_model(folder)]
    if len(models) == 1:
        return models[0]
    if models:
        listed = ", ".join(sorted(str(model.relative_to(root)) for model in models))
        raise WeightsError(
            f"{path} contains several models, in {listed}. Unpack it and load the directory of one."
        )
    listed = ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")
    raise WeightsError(
        f"{path} contains no model: expected options.json and an HDF5 file in one directory (or "
        f"config.json and model.safetensors, or {' and '.join(manylangs.WEIGHTS)}), found "
        f"{listed or 'no files'}."
    )


def _is_model(folder: Path) -> bool:
    names = [entry.name for entry in folder.iterdir()]
    return (
        modeldir.is_model_dir(folder)
        or manylangs.is_many_langs_dir(folder)
        or hdf5dir.is_model(names)
    )
