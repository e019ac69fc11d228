"""Reject pipes, devices, oversized files and invalid paths."""

from __future__ import annotations

import os
from pathlib import Path

from elmokit.errors import ElmoError, OutputError


def check_regular_files(path: Path, error: type[ElmoError]) -> None:
    """Raise an error if `path`, or a file in it, is neither a regular file nor a directory.

    Only files in `path` and in two levels of subdirectories are checked, because `path` can be a
    directory with many other files.
    """
    entries = [path]
    for root, folders, files in os.walk(path) if path.is_dir() else ():
        entries += (Path(root, name) for name in files)
        if len(Path(root).parts) - len(path.parts) >= 2:
            folders.clear()
    for entry in entries:
        if entry.exists() and not (entry.is_file() or entry.is_dir()):
            raise error(f"{entry} is not a regular file. Replace it with a copy of the original.")


def read_bounded(path: Path, error: type[ElmoError], *, max_bytes: int = 2**28) -> bytes:
    """Read a file of limited size.

    Args:
        path: The file.
        error: The type of the error to raise if the file is larger than `max_bytes`.
        max_bytes: The maximum size in bytes.
    """
    size = path.stat().st_size
    if size > max_bytes:
        raise error(
            f"{path} has {size:,} bytes; the limit is {max_bytes:,}. Replace it with a copy of the "
            "original."
        )
    return path.read_bytes()


def resolve_output(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of an output, with symbolic links resolved.

    Raises:
        OutputError: The path is invalid: it contains a NUL character, is too long, or contains a
            loop of symbolic links.
    """
    try:
        resolved = Path(path).resolve()
        resolved.exists()  # raises if the name is too long
        return resolved
    except (OSError, ValueError, RuntimeError) as error:
        raise OutputError(f"Cannot write {str(path)!r}: {error}. Check the path.") from error
