"""Locks between processes. If a process ends or is killed, the operating system releases its locks.

A lock file is removed when its lock is released. A lock file that a killed process left behind does
not block other processes. Some network file systems do not support locks. On these, files are still
written atomically, but concurrent runs are not detected.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from elmokit.errors import OutputError, output_error
from elmokit.storage.regular import resolve_output

RUN_LOCK = ".lock"

_POLL_SECONDS = 0.01
_UNSUPPORTED = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EBADF, errno.EINVAL}

_logger = logging.getLogger(__name__)


@contextmanager
def file_lock(path: Path, *, timeout: float = -1) -> Iterator[bool]:
    """Acquire the lock on a lock file, and release it at the end.

    Args:
        path: The lock file.
        timeout: Seconds to wait if another process holds the lock. Default: no limit.

    Yields:
        Whether the lock is held. False on file systems without locks.

    Raises:
        TimeoutError: Another process still holds the lock after `timeout` seconds.
    """
    from filelock import FileLock  # this import takes 40 ms

    # A soft lock would outlive a killed process.
    lock = FileLock(path, poll_interval=_POLL_SECONDS, thread_local=False, fallback_to_soft=False)
    try:
        lock.acquire(timeout=timeout)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        _logger.warning(
            "The file system of %s does not support locks: concurrent runs are not detected.",
            path.parent,
        )
    try:
        yield lock.is_locked
    finally:
        # Remove the file before the lock is released. A waiting process then notices that it has
        # locked a removed file, and creates a new one.
        with suppress(OSError):
            path.unlink(missing_ok=True)
        lock.release()


@contextmanager
def run_lock(directory: Path) -> Iterator[None]:
    """Lock a directory so that other runs cannot use it.

    If the directory does not exist, it is created, and removed at the end if it is empty.

    Raises:
        OutputError: The directory is in use by another process, or cannot be written.
    """
    resolve_output(directory)  # rejects invalid names
    is_new = not directory.exists()
    with ExitStack() as stack:
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if is_new:
                stack.callback(remove_if_empty, directory)
            stack.enter_context(file_lock(directory / RUN_LOCK, timeout=0))
        except TimeoutError:
            raise OutputError(
                f"{directory} is in use by another process. Wait until it has finished, or choose "
                "another directory."
            ) from None
        except OSError as error:
            raise output_error(directory, error) from error
        yield


def remove_if_empty(directory: Path) -> None:
    """Remove a directory if it is empty."""
    with suppress(OSError):
        directory.rmdir()
