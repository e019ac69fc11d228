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

# The largest published model is 0.4 GB. With a head of a million words, it would be 2.5 GB.
_MAX_BYTES = 16 << 30
# Maximum compression ratio, plus an allowance for small archives. Compression hardly reduces the
# size of weights, and reduces text to about a quarter of its size.
_MAX_RATIO = 100
_ALLOWANCE = 16 << 20
_MAX_ENTRIES = 10_000
_MAX_DEPTH = 20
# Other methods (bzip2 and LZMA) can return gigabytes for one small read.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@contextmanager
def extracted(path: Path) -> Iterator[Path]:
    """Extract a zip file to a temporary directory, and yield the model directory in it."""
    # Some systems cannot delete memory-mapped files.
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
        yield _find_model(root, path)


def _check(entries: list[zipfile.ZipInfo], path: Path) -> None:
    limit = min(_MAX_BYTES, _ALLOWANCE + _MAX_RATIO * path.stat().st_size)
    size = sum(entry.file_size for entry in entries)
    problem = ""
    if len(entries) > _MAX_ENTRIES:
        problem = f"it contains {len(entries):,} files; expected at most {_MAX_ENTRIES:,}"
    elif size > limit:
        problem = f"its uncompressed size is {size:,} bytes; expected at most {limit:,}"
    elif any(entry.filename.count("/") > _MAX_DEPTH for entry in entries):
        problem = f"it contains directories nested more than {_MAX_DEPTH} levels deep"
    elif any(entry.compress_type not in _METHODS for entry in entries):
        problem = "it uses an unsupported compression method; expected stored or deflated"
    if problem:
        raise WeightsError(
            f"{path} was rejected: {problem}. If you trust the archive, extract it and load the "
            "directory."
        )


def _extract(archive: zipfile.ZipFile, root: Path) -> None:
    # macOS adds metadata files with the same names as the model files.
    entries = [e for e in archive.infolist() if not e.filename.startswith("__MACOSX")]
    try:
        archive.extractall(root, entries)
    except OSError as error:
        raise output_error(root, error) from error


def _find_model(root: Path, path: Path) -> Path:
    """Return the only directory that contains a model."""
    entries = sorted(root.rglob("*"))
    models = [folder for folder in (root, *entries) if folder.is_dir() and _is_model(folder)]
    if len(models) == 1:
        return models[0]
    listed = join_names(str(entry.relative_to(root)) for entry in models or entries)
    if models:
        raise WeightsError(
            f"{path} contains several models: {listed}. Extract it and load one of the directories."
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
