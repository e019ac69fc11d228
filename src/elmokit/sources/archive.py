"""Read models in zip files, such as those of the NLPL repository.

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

from elmokit.convert import elmo_for_many_langs
from elmokit.errors import WeightsError, join_names, output_error
from elmokit.sources import hdf5dir, modeldir

# The largest published model has 0.4 GB; with a million words, it would have 2.5 GB.
_MAX_BYTES = 16 << 30
# Weights hardly compress, and text about fourfold. The free bytes exempt small archives.
_MAX_RATIO = 100
_FREE_BYTES = 16 << 20
_MAX_ENTRIES = 10_000
_MAX_DEPTH = 20
# bzip2 and LZMA can return gigabytes for one small read.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@contextmanager
def extracted(path: Path) -> Iterator[Path]:
    """Extract a zip file into a temporary directory and yield the directory of the model in it."""
    # Where open files cannot be deleted, memory-mapped files stay until the process ends.
    with tempfile.TemporaryDirectory(prefix="elmokit-", ignore_cleanup_errors=True) as temporary:
        root = Path(temporary)
        try:
            with zipfile.ZipFile(path) as archive:
                _check(archive.infolist(), path)
                _extract(archive, root)
        # zipfile raises a RuntimeError for encrypted entries.
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError) as error:
            raise WeightsError(
                f"{path} cannot be read as a zip file ({error}). It may be truncated; download it "
                "again."
            ) from error
        yield _only_model(root, path)


def _check(entries: list[zipfile.ZipInfo], path: Path) -> None:
    limit = min(_MAX_BYTES, _FREE_BYTES + _MAX_RATIO * path.stat().st_size)
    size = sum(entry.file_size for entry in entries)
    problem = ""
    if len(entries) > _MAX_ENTRIES:
        problem = f"it contains {len(entries):,} files; expected at most {_MAX_ENTRIES:,}"
    elif size > limit:
        problem = f"its contents have {size:,} bytes; expected at most {limit:,} for its size"
    elif any(entry.filename.count("/") > _MAX_DEPTH for entry in entries):
        problem = f"it contains directories nested more than {_MAX_DEPTH} levels deep"
    elif any(entry.compress_type not in _METHODS for entry in entries):
        problem = "it uses an unsupported compression method; expected stored or deflated"
    if problem:
        raise WeightsError(
            f"{path} is rejected: {problem}. If you trust the archive, unpack it and load the "
            "directory."
        )


def _extract(archive: zipfile.ZipFile, root: Path) -> None:
    # macOS adds files with attributes, named like the files themselves.
    entries = [e for e in archive.infolist() if not e.filename.startswith("__MACOSX")]
    try:
        archive.extractall(root, entries)
    except OSError as error:
        raise output_error(root, error) from error


def _only_model(root: Path, path: Path) -> Path:
    """Return the directory that contains a model."""
    entries = sorted(root.rglob("*"))
    models = [folder for folder in (root, *entries) if folder.is_dir() and _is_model(folder)]
    if len(models) == 1:
        return models[0]
    listed = join_names(str(entry.relative_to(root)) for entry in models or entries)
    if models:
        raise WeightsError(
            f"{path} contains several models, in {listed}. Unpack it and load the directory of one."
        )
    raise WeightsError(
        f"{path} contains no model: expected options.json and an HDF5 file in one directory, or "
        f"config.json and model.safetensors, or {' and '.join(elmo_for_many_langs.WEIGHTS)}; found "
        f"{listed}."
    )


def _is_model(folder: Path) -> bool:
    return (
        modeldir.is_model_dir(folder)
        or elmo_for_many_langs.is_model_dir(folder)
        or hdf5dir.is_model(entry.name for entry in folder.iterdir())
    )
