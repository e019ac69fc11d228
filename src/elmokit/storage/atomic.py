"""Atomic writes: a reader sees either the old or the new file or directory, never a partial one.

A file is replaced with a single rename. To replace a directory, the old directory is first renamed
to `.NAME.elmokit-old`, and then the new one is renamed to NAME. If the process is killed between
these renames, `restore_directory` undoes the first one. Call `restore_directory` before reading a
directory that is replaced in this way.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path

from elmokit.errors import output_error
from elmokit.storage.lock import file_lock
from elmokit.storage.regular import resolve_output

_BACKUP_SUFFIX = ".elmokit-old"


@contextmanager
def replace_file(path: Path, *, temporary: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path to write to, and rename it to `path` at the end.

    If an error occurs or the process is killed, `path` is unchanged.

    Args:
        path: The file to create or replace.
        temporary: The temporary path, on the same file system. Default: next to `path`.

    Raises:
        OutputError: The file cannot be written.
    """
    path = Path(path)
    temporary = temporary or _temporary(path)
    resolve_output(temporary)  # rejects invalid names
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        move_into_place(temporary, path)
    except OSError as error:
        raise output_error(path, error) from error
    finally:
        with suppress(OSError):  # an error here would hide the original error
            temporary.unlink(missing_ok=True)


def move_into_place(temporary: Path, path: Path) -> None:
    """Flush a complete file to disk and rename it to `path`."""
    _sync(temporary)
    temporary.replace(path)


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically.

    Raises:
        OutputError: The file cannot be written.
    """
    with replace_file(path) as temporary:
        temporary.write_text(text, "utf-8")


@contextmanager
def replace_directory(path: Path, *, check: Callable[[], None] = lambda: None) -> Iterator[Path]:
    """Yield a temporary directory to fill, and rename it to `path` at the end.

    If an error occurs, `path` is unchanged. If the process is killed, `path` is unchanged, or
    `restore_directory` restores it.

    Args:
        path: The directory to create or replace.
        check: Function that raises an exception if `path` must not be replaced. It is called just
            before the rename, because another process may have created `path` in the meantime.

    Raises:
        OutputError: The directory cannot be written.
    """
    path = resolve_output(path)  # if `path` is a symbolic link, its target is replaced
    temporary = _temporary(path)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for file in temporary.rglob("*"):
            if file.is_file():
                _sync(file)
        with _rename_lock(path):
            _restore(path)
            check()
            _swap(temporary, path)
    except OSError as error:
        raise output_error(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def sync_directory(path: Path) -> None:
    """Flush the entries of a directory to disk, so that renames survive a power failure."""
    with suppress(OSError):  # not supported on Windows or on some file systems
        _sync(path)


def restore_directory(path: Path) -> None:
    """Restore a directory if a process was killed while replacing it."""
    # The caller reports invalid paths. For a loop of symbolic links, `resolve` may raise a
    # RuntimeError.
    with suppress(OSError, ValueError, RuntimeError):
        path = Path(path).resolve()
        if not path.exists() and _backup_path(path).is_dir():
            with _rename_lock(path):
                _restore(path)


def restore_directories(parent: Path) -> None:
    """Call `restore_directory` for all subdirectories of `parent`."""
    for backup in list(parent.glob(f".*{_BACKUP_SUFFIX}")):
        restore_directory(parent / backup.name[1 : -len(_BACKUP_SUFFIX)])


def _swap(new: Path, path: Path) -> None:
    try:
        if path.exists():
            path.rename(_backup_path(path))
        new.rename(path)
    finally:
        _restore(path)


def _restore(path: Path) -> None:
    """Rename the backup to `path`, or remove the backup if `path` exists."""
    backup = _backup_path(path)
    if path.exists():
        shutil.rmtree(backup, ignore_errors=True)
    elif backup.exists():
        backup.rename(path)


def _backup_path(path: Path) -> Path:
    return path.with_name(f".{path.name}{_BACKUP_SUFFIX}")


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")


def _rename_lock(path: Path) -> AbstractContextManager[bool]:
    return file_lock(path.with_name(f".{path.name}.lock"))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
