"""Locks between processes that share folders; the system lets go of them when a process dies.

A short lock is on a folder itself, so that no file is left: many wait for each other while one
looks and renames. A long lock is on a file in the folder, held for a whole run: others are refused.

Where there are no locks (Windows, some network file systems), all may: what is written beside and
renamed is still whole.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from elmokit.errors import OutputError

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

RUNNING = ".running.lock"
HAS_LOCKS = fcntl is not None


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Wait for a folder and hold it, for a moment: nobody holds this lock while he computes."""
    if fcntl is None:
        yield
        return
    descriptor = None
    try:
        with contextlib.suppress(OSError):  # a file system without locks, or no right to look in
            descriptor = os.open(folder, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        if descriptor is not None:
            _let_go(descriptor)


@contextlib.contextmanager
def file_lock(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock file, which is there only as long as somebody holds it.

    Raises:
        BlockingIOError: Another holds it, and we do not wait.
    """
    descriptor = _taken(path, wait=wait)
    try:
        yield
    finally:
        if descriptor is not None:
            path.unlink(missing_ok=True)  # before we let go: who waits sees that it is another
            _let_go(descriptor)


def is_held(path: Path) -> bool:
    """Tell whether a lock file is held; where there are no locks, it may be."""
    if fcntl is None:
        return True
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:  # nobody holds what is not there
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        _let_go(descriptor)
    return False


@contextlib.contextmanager
def running(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder for as long as this one takes; it is made if need be.

    Raises:
        OutputError: Another run is at work in it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(file_lock(folder / RUNNING, wait=False))
        except BlockingIOError:
            raise _at_work(folder) from None
        yield


def check_not_running(folder: Path) -> None:
    """Raise if another run is at work in a folder."""
    if fcntl is not None and is_held(folder / RUNNING):
        raise _at_work(folder)


def _at_work(folder: Path) -> OutputError:
    return OutputError(
        f"Another process is at work in {folder}. Wait for it, or choose another folder."
    )


def _taken(path: Path, *, wait: bool) -> int | None:
    if fcntl is None:
        return None
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # The one before us may have removed the file that we opened and waited for.
            if os.path.samestat(os.fstat(descriptor), path.stat()):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise
        except FileNotFoundError:
            pass
        except OSError:  # a file system without locks
            os.close(descriptor)
            return None
        os.close(descriptor)


def _let_go(descriptor: int) -> None:
    """Let go in this moment, though a process that was copied from this one may have it open."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
