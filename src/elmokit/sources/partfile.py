"""A download under way: the bytes so far, a note of what they belong to, and who may write.

`weights.hdf5.part` holds the bytes so far. `weights.hdf5.part.json` says which version of which
address they are of, without which they could not be continued. `weights.hdf5.lock` is held by the
process that writes; a second process waits for it. When all bytes have arrived, the file is
renamed.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from elmokit.errors import ElmoError, output_error
from elmokit.storage.atomic import move_into_place
from elmokit.storage.lock import file_lock
from elmokit.storage.manifest import read_json, write_json

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
                write_json(self._note, asdict(version))
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
        """Rename the complete file to its destination."""
        try:
            self._file.close()
            move_into_place(self.path, self.destination)
            self._note.unlink(missing_ok=True)
        except OSError as error:
            raise output_error(self.destination, error) from error

    def discard(self) -> None:
        """Remove the bytes and the note."""
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)

    def _read_note(self) -> Version | None:
        with suppress(ElmoError, TypeError):
            return Version(**read_json(self._note))
        return None  # without a note, the download begins again


@contextmanager
def part_file(destination: Path) -> Iterator[PartFile | None]:
    """Open the unfinished file of `destination` for this process alone.

    Waits while another process writes it, and yields None if that one finished it. What was fetched
    stays for the next time.
    """
    with _download_lock(destination) as locked:
        if destination.exists():
            yield None
            return
        # Without locks, a name of our own that no other process writes to and nobody can continue.
        infix = "" if locked else f".{uuid.uuid4().hex[:8]}"
        path = destination.with_name(f"{destination.name}{infix}.part")
        with path.open("ab") as file:
            part = PartFile(path, file, destination)
            try:
                yield part
            finally:
                if not file.closed and (not locked or part.size == 0):
                    part.discard()


@contextmanager
def _download_lock(destination: Path) -> Iterator[bool]:
    path = destination.with_name(destination.name + ".lock")
    with ExitStack() as stack:
        try:
            locked = stack.enter_context(file_lock(path, timeout=0))
        except TimeoutError:
            _logger.warning("Waiting for another process that fetches %s.", destination.name)
            locked = stack.enter_context(file_lock(path))
        yield locked
