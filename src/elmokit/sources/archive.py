"""Models in zip files, such as those of the NLPL repository, read without trusting the file.

Bytes are counted during extraction instead of trusting headers. Archives with suspicious entries
(`..`, links, encryption) are rejected.
"""

from __future__ import annotations

import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

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
_MAC = "__MACOSX"  # attributes of files, under the names of the files
_ADVICE = "If you trust the archive, unpack it and load the directory."


@contextmanager
def extracted(path: Path) -> Iterator[Path]:
    """Extract a zip file into a temporary directory and yield the directory of the model in it."""
    # Where open files cannot be deleted, memory-mapped files stay until the process ends.
    with tempfile.TemporaryDirectory(prefix="elmokit-", ignore_cleanup_errors=True) as temporary:
        root = Path(temporary)
        try:
            with zipfile.ZipFile(path) as archive:
                names = _extract_all(archive, root, path)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
            raise WeightsError(
                f"{path} cannot be read as a zip file ({error}). It may be truncated; download it "
                "again."
            ) from error
        yield _only_model(root, names, path)


def _extract_all(archive: zipfile.ZipFile, root: Path, path: Path) -> list[str]:
    """Extract all files and return their names."""
    members = archive.infolist()
    if len(members) > _MAX_MEMBERS:
        raise WeightsError(
            f"{path} contains {len(members):,} files; expected at most {_MAX_MEMBERS:,}. {_ADVICE}"
        )
    names = [(member, _safe_name(member, path)) for member in members]
    limit = min(_MAX_BYTES, _FREE_BYTES + _MAX_RATIO * path.stat().st_size)
    for member, name in names:
        if not member.is_dir() and name.parts[0] != _MAC:
            limit -= _extract(archive, member, root / name, limit, path)
    return [str(name) for _, name in names]


def _safe_name(member: zipfile.ZipInfo, path: Path) -> PurePosixPath:
    name = PurePosixPath(member.filename.replace("\\", "/"))
    kind = stat.S_IFMT(member.external_attr >> 16)
    if not name.parts or name.is_absolute() or ".." in name.parts or ":" in name.parts[0]:
        problem = "points outside the archive"
    elif kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        problem = "is a link or a device"
    elif member.flag_bits & 0x1:
        problem = "is encrypted"
    elif member.compress_type not in _METHODS:
        problem = f"uses compression method {member.compress_type}; expected stored or deflated"
    else:
        return name
    raise WeightsError(f"{path} is rejected: its entry {member.filename!r} {problem}. {_ADVICE}")


def _extract(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, target: Path, limit: int, path: Path
) -> int:
    """Write one file and return its size."""
    size = 0
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(member) as source, target.open("xb") as file:
            while size <= limit and (chunk := source.read(_CHUNK)):
                size += len(chunk)
                file.write(chunk)
    except FileExistsError:
        raise WeightsError(f"{path} contains {member.filename!r} twice.") from None
    except OSError as error:
        raise output_error(target, error) from error
    if size > limit:
        raise WeightsError(
            f"{path} is rejected: its entry {member.filename!r} exceeds {limit:,} bytes, more than "
            f"{_MAX_RATIO} times the size of the archive. Weights do not compress that well. "
            f"{_ADVICE}"
        )
    if size != member.file_size:
        raise WeightsError(
            f"{path}: the entry {member.filename!r} has {size:,} bytes; expected "
            f"{member.file_size:,}. The file may be truncated; download it again."
        )
    return size


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
