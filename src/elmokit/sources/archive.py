"""Models in zip files, such as those of the NLPL repository, read without trusting the file.

Files are extracted without their paths into a temporary directory, so that no entry can be written
elsewhere, and bytes are counted during extraction instead of trusting headers. Archives with
suspicious entries (`..`, links, encryption) are rejected.
"""

from __future__ import annotations

import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, BinaryIO

from elmokit.errors import WeightsError, output_error
from elmokit.sources import hdf5dir, manylangs, modeldir

# The largest model published in this format has 0.4 GB; with a million words it would have 2.5.
_MAX_BYTES = 16 << 30
# Weights hardly compress, and text about fourfold. Small archives are exempt.
_MAX_RATIO = 100
_FREE_BYTES = 16 << 20
_MAX_MEMBERS = 10_000
_CHUNK = 1 << 20
# bzip2 and LZMA can return gigabytes for one small read.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@contextmanager
def extracted(path: Path) -> Iterator[Path]:
    """Yield a temporary directory with the model files of a zip file."""
    # Where open files cannot be deleted, memory-mapped files stay until the process ends.
    with tempfile.TemporaryDirectory(prefix="elmokit-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        with _opened(path) as archive:
            limit = min(_MAX_BYTES, _FREE_BYTES + _MAX_RATIO * path.stat().st_size)
            for member in _model_members(archive, path):
                limit -= _extract(archive, member, folder, limit, path)
        yield folder


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except FileNotFoundError:
        raise WeightsError(f"There is no file {path}.") from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise WeightsError(
            f"{path} cannot be read as a zip ({error}). It may be truncated; fetch it again."
        ) from error


def _model_members(archive: zipfile.ZipFile, path: Path) -> list[zipfile.ZipInfo]:
    """Choose the files of the one model in an archive."""
    members = archive.infolist()
    if len(members) > _MAX_MEMBERS:
        raise WeightsError(f"{path} holds {len(members):,} files; a model has a handful.")
    folders: dict[PurePosixPath, list[zipfile.ZipInfo]] = {}
    for member in members:
        name = _safe_name(member, path)
        if not member.is_dir() and name.parts[0] != "__MACOSX" and _is_wanted(name.name):
            folders.setdefault(name.parent, []).append(member)
    models = {folder: files for folder, files in folders.items() if _is_model(files)}
    if len(models) == 1:
        return next(iter(models.values()))
    if models:
        listed = ", ".join(sorted(str(folder) for folder in models))
        raise WeightsError(
            f"{path} holds several models, in {listed}. Unpack it and give the folder of one."
        )
    listed = ", ".join(member.filename for member in members[:12]) or "nothing"
    raise WeightsError(
        f"{path} holds no model: looked for an options.json and an HDF5 file in one folder (or "
        f"config.json and model.safetensors, or {' and '.join(manylangs.WEIGHTS)}), found "
        f"{listed}{', ...' if len(members) > 12 else ''}."
    )


def _safe_name(member: zipfile.ZipInfo, path: Path) -> PurePosixPath:
    text = member.filename.replace("\\", "/")
    name = PurePosixPath(text)
    kind = stat.S_IFMT(member.external_attr >> 16)
    if not name.parts or name.is_absolute() or ".." in name.parts or ":" in name.parts[0]:
        fault = "leads out of the archive"
    elif kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        fault = "is a link or a device"
    elif member.flag_bits & 0x1:
        fault = "is encrypted"
    elif member.compress_type not in _METHODS:
        fault = f"is compressed by method {member.compress_type}, neither stored nor deflated"
    else:
        return name
    raise WeightsError(
        f"{path} is not read: its entry {member.filename!r} {fault}. "
        "If you trust it, unpack it yourself and give the folder."
    )


def _is_wanted(name: str) -> bool:
    return (
        (hdf5dir.is_options(name) or hdf5dir.is_weights(name) or manylangs.is_file(name))
        and not name.startswith(".")
    ) or name in modeldir.FILES


def _is_model(files: list[zipfile.ZipInfo]) -> bool:
    names = {PurePosixPath(file.filename.replace("\\", "/")).name for file in files}
    if {modeldir.CONFIG, modeldir.WEIGHTS} <= names or set(manylangs.WEIGHTS) <= names:
        return True
    return any(map(hdf5dir.is_options, names)) and any(map(hdf5dir.is_weights, names))


def _extract(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path, limit: int, path: Path
) -> int:
    """Write one file and return its size."""
    target = folder / PurePosixPath(member.filename.replace("\\", "/")).name
    try:
        with archive.open(member) as source, target.open("xb") as file:
            size = _copy(source, file, limit)
    except FileExistsError:
        raise WeightsError(f"{path} holds {member.filename!r} twice.") from None
    except OSError as error:
        raise output_error(target, error) from error
    if size is None:
        raise WeightsError(
            f"{path} is not read: its entry {member.filename!r} grows beyond {limit:,} bytes, more "
            f"than {_MAX_RATIO} times the archive. No weights compress like that. If you trust it, "
            "unpack it yourself and give the folder."
        )
    if size != member.file_size:
        raise WeightsError(
            f"{path}: the entry {member.filename!r} has {size:,} bytes where the archive promises "
            f"{member.file_size:,}. It may be truncated; fetch it again."
        )
    return size


def _copy(source: IO[bytes], file: BinaryIO, limit: int) -> int | None:
    """Copy all bytes; return None as soon as there are more than the limit."""
    size = 0
    while chunk := source.read(_CHUNK):
        size += len(chunk)
        if size > limit:
            return None
        file.write(chunk)
    return size
