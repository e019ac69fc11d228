"""Atomic writes: a reader sees either the old or the new file or directory, never a partial one.

A file is replaced by one `os.replace`. A directory needs two renames: the old one is moved aside to
`.NAME.elmokit-old`, then the new one takes its name. If the process is killed between the two,
`restore_directory` moves the old one back; everything that reads such a directory calls it first.
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

_ASIDE = ".elmokit-old"


@contextmanager
def replace_file(path: Path, *, temporary: Path | None = None) -> Iterator[Path]:
    """Yield a temporary path to write to, and rename it to `path` at the end.

    After an error, or a kill that leaves the temporary file behind, `path` is as it was.

    Args:
        path: The file to create or replace.
        temporary: Where to write first, on the same file system. Default: next to `path`.

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
        with suppress(OSError):  # it would hide the first error
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

    After an error, or a kill that leaves the temporary directory behind, `path` is as it was.

    Args:
        path: The directory to create or replace.
        check: Called again just before the rename, because another process may have created `path`
            in the meantime. It raises if `path` must not be replaced.

    Raises:
        OutputError: The directory cannot be written.
    """
    path = resolve_output(path)  # a symbolic link stays, and its target is replaced
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
    """Flush the names in a directory to disk, before the files they replace are removed."""
    with suppress(OSError):  # Windows and some file systems cannot
        _sync(path)


def restore_directory(path: Path) -> None:
    """Move a directory back that a killed process had moved aside to replace it."""
    # The caller reports what is wrong with `path`; a loop of links is a RuntimeError.
    with suppress(OSError, ValueError, RuntimeError):
        path = Path(path).resolve()
        if not path.exists() and _aside(path).is_dir():
            with _rename_lock(path):
                _restore(path)


def restore_directories(parent: Path) -> None:
    """Call `restore_directory` for everything in `parent` that was moved aside."""
    for aside in list(parent.glob(f".*{_ASIDE}")):
        restore_directory(parent / aside.name[1 : -len(_ASIDE)])


def _swap(new: Path, path: Path) -> None:
    try:
        if path.exists():
            path.rename(_aside(path))
        new.rename(path)
    finally:
        _restore(path)


def _restore(path: Path) -> None:
    """Move the directory that was moved aside back, or remove it if `path` exists."""
    aside = _aside(path)
    if path.exists():
        shutil.rmtree(aside, ignore_errors=True)
    elif aside.exists():
        aside.rename(path)


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}{_ASIDE}")


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
