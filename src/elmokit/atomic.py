"""Write beside and rename: a reader sees the old file or the new one, never half of one."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from elmokit.errors import OutputError
from elmokit.locking import folder_lock


@contextmanager
def replacing(
    path: Path, *, directory: bool = False, check: Callable[[], None] = lambda: None
) -> Iterator[Path]:
    """Give a temporary path beside `path` to write to; rename it to `path` if all went well.

    After an error, or a kill that leaves the temporary file behind, `path` is as it was.

    Args:
        path: The file (or, with `directory`, the folder) to make or replace.
        directory: Make a folder; what stood at `path` is put aside and removed after the rename.
        check: Asked once more before a folder gets its name: another process may have made it.
    """
    path = Path(path)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if directory:
            temporary.mkdir()
        yield temporary
        if directory:
            for file in temporary.rglob("*"):
                if file.is_file():
                    _sync(file)
            with folder_lock(path.parent):
                check()
                _swap(temporary, path)
        else:
            _sync(temporary)
            temporary.replace(path)
    except OSError as error:
        raise output_error(path, error) from error
    finally:
        with contextlib.suppress(OSError):  # what went wrong first is what should be told
            if temporary.is_dir():
                shutil.rmtree(temporary, ignore_errors=True)
            else:
                temporary.unlink(missing_ok=True)


def output_error(path: Path, error: OSError) -> OutputError:
    """Say in our own words why `path` cannot be written."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason, remedy = "no space is left", "make room or choose another place"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        reason, remedy = "permission is denied", "choose a folder you may write to"
    elif error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ENOTEMPTY):
        reason, remedy = str(error), "something else stands at that path; choose another"
    else:
        reason, remedy = str(error), "see the message of the system"
    return OutputError(f"Cannot write {path}: {reason}. To go on: {remedy}.")


def _swap(temporary: Path, path: Path) -> None:
    if not path.exists():
        temporary.replace(path)
        return
    if _exchanged(temporary, path):  # what stood at `path` goes with the temporary folder
        return
    old = temporary.with_suffix(".old")
    path.replace(old)
    try:
        temporary.replace(path)
    except BaseException:  # Ctrl-C, too: the old folder goes back to its place
        old.replace(path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchanged(a: Path, b: Path) -> bool:
    """Let two folders change their names at once, so that there always is one; where Linux can."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):
        return False
    here, exchange = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(rename(here, os.fsencode(a), here, os.fsencode(b), exchange) == 0)


def _sync(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())
