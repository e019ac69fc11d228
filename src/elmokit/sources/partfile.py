"""A download under way: the bytes so far, a note of what they belong to, and who may write.

`weights.hdf5.part` holds the bytes and is locked by the process that writes it; a second process
waits. `weights.hdf5.part.json` tells which version of which address the bytes are of, without which
they could not be continued. When all is there, the file is renamed; nobody ever sees half of it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from elmokit.atomic import output_error

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

_POLL_SECONDS = 0.1

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Version:
    """Which file a server gave: enough to tell whether it still gives the same one."""

    url: str
    etag: str | None = None
    modified: str | None = None
    total: int | None = None

    def matches(self, other: Version) -> bool:
        """Tell whether nothing speaks against the two being the same file."""
        if self.url != other.url or self.total is None or self.total != other.total:
            return False
        pairs = ((self.etag, other.etag), (self.modified, other.modified))
        return all(a is None or b is None or a == b for a, b in pairs)


class PartFile:
    """The unfinished file. Errors of the disk come out as `OutputError`."""

    def __init__(self, path: Path, file: BinaryIO, destination: Path) -> None:
        self.path = path
        self.destination = destination
        self._file = file
        self._note = path.with_name(path.name + ".json")
        self.version = self._read_note()

    @property
    def size(self) -> int:
        """The bytes that are there."""
        self._file.flush()
        return os.fstat(self._file.fileno()).st_size

    def restart(self, version: Version | None) -> None:
        """Throw the bytes away and begin with a (new) version."""
        try:
            self._file.truncate(0)
            if version is None:
                self._note.unlink(missing_ok=True)
            else:
                self._note.write_text(json.dumps(asdict(version)), "utf-8")
        except OSError as error:
            raise output_error(self.path, error) from error
        self.version = version

    def append(self, data: bytes) -> None:
        """Add bytes at the end."""
        try:
            self._file.write(data)
        except OSError as error:
            raise output_error(self.path, error) from error

    def finish(self) -> None:
        """Give the file its name, while it is still locked."""
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            if fcntl is None:  # such systems do not rename an open file
                self._file.close()
            self.path.replace(self.destination)
            self._note.unlink(missing_ok=True)
        except OSError as error:
            raise output_error(self.destination, error) from error

    def discard(self) -> None:
        """Remove the bytes and the note."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def _read_note(self) -> Version | None:
        try:
            return Version(**json.loads(self._note.read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            return None  # without a note, or with half of one, the download begins again


@contextmanager
def part_file(destination: Path) -> Iterator[PartFile | None]:
    """Open the unfinished file of `destination`, alone.

    Waits while another process writes it, and gives None if that one finished it. What was fetched
    stays for the next time.
    """
    path = destination.with_name(destination.name + ".part")
    file = _opened_alone(path)
    kept = file is not None
    if file is None:  # a name of our own, which nobody could continue
        path = destination.with_name(f"{destination.name}.{uuid.uuid4().hex[:8]}.part")
        file = path.open("ab")
    with file:
        part = PartFile(path, file, destination)
        if destination.exists():
            part.discard()
            yield None
            return
        try:
            yield part
        finally:
            if not kept or part.size == 0:
                part.discard()


def _opened_alone(path: Path) -> BinaryIO | None:
    """Open a file and lock it, after whoever has it; None where there are no locks."""
    if fcntl is None:
        return None
    while True:
        file = path.open("ab")
        try:
            if not _locked(file):
                _logger.warning("Waiting for another process that fetches %s.", path.stem)
                while not _locked(file):
                    time.sleep(_POLL_SECONDS)
        except OSError:  # some network file systems
            file.close()
            return None
        except BaseException:
            file.close()
            raise
        # The writer before us may have renamed the file that we opened and waited for.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()


def _locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
