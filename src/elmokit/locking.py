"""Locks between processes that share folders; the system lets go of them when a process dies.

A short lock is on a folder itself, so that no file is left: many wait for each other while one
looks and renames. A long lock is on a file in the folder, held for a whole run: others are refused.

Where there are no locks (Windows, some network file systems), all may: what is written beside and
renamed is still whole.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from elmokit.errors import OutputError

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

RUNNING = ".running.lock"

# A folder is held for a moment only, if it is by us; any script may hold one, too.
_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.002
# Who looks whether a lock is held has it himself for an instant.
_LOOKS, _LOOK_SECONDS = 5, 0.05


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Wait for a folder and hold it, for a moment: nobody holds this lock while he computes.

    Raises:
        OutputError: Something else holds the folder, and does not let go.
    """
    descriptor = None
    try:
        if fcntl is not None:
            with contextlib.suppress(OSError):  # no right to look in
                descriptor = os.open(folder, os.O_RDONLY)
        if descriptor is not None:
            _wait_for(folder, descriptor)
        yield
    finally:
        if descriptor is not None:
            _let_go(descriptor)


@contextlib.contextmanager
def file_lock(path: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a lock file, which is there only as long as somebody holds it.

    Gives whether it is held; False where there are no locks.

    Raises:
        BlockingIOError: Another holds it, and we do not wait.
    """
    descriptor = _taken(path, wait=wait)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            # Before we let go: who waits sees that it is another. If the folder was moved away and
            # begun anew, what stands there now is not ours.
            with contextlib.suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    path.unlink()
            _let_go(descriptor)


def is_held(path: Path, *, unknown: bool = True) -> bool:
    """Tell whether a lock file is held.

    Args:
        path: The lock file.
        unknown: What to say where there are no locks.
    """
    if fcntl is None:
        return unknown
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:  # nobody holds what is not there
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return unknown
    finally:
        _let_go(descriptor)
    return False


@contextlib.contextmanager
def running(folder: Path) -> Iterator[None]:
    """Keep other runs out of a folder for as long as this one takes; it is made if need be.

    Raises:
        OutputError: Another run is at work in it, or it cannot be written.
    """
    from elmokit.atomic import output_error

    with contextlib.ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for look in range(_LOOKS):
                try:
                    held.enter_context(file_lock(folder / RUNNING, wait=False))
                    break
                except BlockingIOError:
                    if look == _LOOKS - 1:
                        raise _at_work(folder) from None
                    time.sleep(_LOOK_SECONDS)
        except OSError as error:
            raise output_error(folder, error) from error
        yield


def check_not_running(folder: Path) -> None:
    """Raise if another run is at work in a folder."""
    if is_held(folder / RUNNING, unknown=False):
        raise _at_work(folder)


def _at_work(folder: Path) -> OutputError:
    return OutputError(
        f"Another process is at work in {folder}. Wait for it, or choose another folder."
    )


def _wait_for(folder: Path, descriptor: int) -> None:
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                raise OutputError(
                    f"The folder {folder} was locked by another program for "
                    f"{_PATIENCE_SECONDS:.0f} s (perhaps by flock in a script). Let it go, or "
                    "choose another folder."
                ) from None
            time.sleep(_POLL_SECONDS)
        except OSError:  # a file system without locks
            return
        else:
            return


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
            with contextlib.suppress(OSError):
                path.unlink()
            return None
        os.close(descriptor)


def _let_go(descriptor: int) -> None:
    """Let go in this moment, though a process that was copied from this one may have it open."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
