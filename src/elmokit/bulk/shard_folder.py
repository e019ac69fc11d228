"""The folder of shards that a corpus becomes: `elmo embed FILES -o out/`.

manifest.json             what is being made: model, settings, documents; written once, at the start
00003-000012.parquet      the shards: document 3, chunk 12, each with its own record, and with the
                          places of its sentences that have no tokens, and so no row
shards.json               all shards with their records; written last, so that who reads the folder
                          (files/sharded.py) knows that it is complete

A shard is written beside and renamed, and what stands under its name is whole. Written twice, by a
worker that was thought to be dead, it has the same rows. The folder may lie on this machine, or
where pyarrow finds it (s3://...); many machines need one that all of them see.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from elmokit.bulk.documents import is_remote
from elmokit.bulk.work import check_same_run
from elmokit.errors import DataError, OutputError, output_error
from elmokit.storage.atomic import replace_file
from elmokit.storage.lock import run_lock
from elmokit.storage.manifest import check_format, parse_json

MANIFEST = "manifest.json"
SHARDS = "shards.json"
RECORD = b"elmokit.shard"
EMPTY = b"elmokit.empty"
VERSION = 2

_START_AGAIN = "Start again with --overwrite."
_SHARD = re.compile(r"\d{5,}-\d{6,}\.parquet")
_TEMPORARY = re.compile(r"\..*\.tmp")


class ShardFolder:
    """A folder of shards.

    Args:
        place: Its path or address.
        filesystem: Where it is, with `place` as the path there; found by the address otherwise.
    """

    def __init__(self, place: str, filesystem: Any = None) -> None:
        from pyarrow import fs

        self.place = place
        self._path = place if is_remote(place) or filesystem else str(Path(place).resolve())
        self._filesystem = filesystem
        if filesystem is None and is_remote(place):
            try:
                self._filesystem, self._path = fs.FileSystem.from_uri(place)
            except (OSError, ValueError) as error:
                raise OutputError(f"Cannot write {place}: {error}") from error
        self._is_local = self._filesystem is None
        self._filesystem = self._filesystem or fs.LocalFileSystem()
        self._lock = ExitStack()

    # ---------------------------------------------------------------------------------- beginning

    def check(self, *, resume: bool, overwrite: bool) -> None:
        """Raise if something else is there, before anything is loaded or computed."""
        if self._is_local and Path(self._path).is_file():
            raise OutputError(f"{self.place} is a file, expected the name of a folder to make.")
        names = self.names()
        if MANIFEST not in names and any(not name.startswith(".") for name in names):
            raise OutputError(
                f"{self.place} is a folder with other things in it. Name one that is not there yet."
            )
        if MANIFEST in names and not (resume or overwrite):
            raise OutputError(
                f"{self.place} holds the shards of an earlier run. Go on with it by --resume, or "
                "throw it away by --overwrite."
            )

    def begin(self, manifest: Mapping[str, Any], *, resume: bool, overwrite: bool) -> bool:
        """Make the folder, or go on with it.

        Returns:
            Whether it goes on with what an earlier run has begun.

        Raises:
            OutputError: Something else is there, or another process is at work.
            ConfigError: It was begun with another model, other settings or other documents.
        """
        self.check(resume=resume, overwrite=overwrite)
        if self._is_local:
            self._lock.enter_context(run_lock(Path(self._path)))
        try:
            return self._begin(manifest, resume=resume, overwrite=overwrite)
        except BaseException:
            self.release()
            raise

    def _begin(self, manifest: Mapping[str, Any], *, resume: bool, overwrite: bool) -> bool:
        self.check(resume=resume, overwrite=overwrite)  # another run may just have ended
        names = self.names()
        goes_on = resume and MANIFEST in names
        if goes_on:
            before = self.read_json(MANIFEST)
            check_format(
                before,
                f"{self.place}/{MANIFEST}",
                None,
                VERSION,
                oldest=VERSION,
                key="version",
                error=DataError,
                hint=_START_AGAIN,
            )
            del before["version"]
            check_same_run(self.place, before, manifest)
        else:
            # The list first, so that at no moment it names shards that are gone.
            for name in sorted(names, key=lambda name: name != SHARDS):
                if _SHARD.fullmatch(name) or name == SHARDS:
                    self._remove(name)
            self.write_json(MANIFEST, {"version": VERSION, **manifest})
        self.remove_unfinished()
        return goes_on

    def remove_unfinished(self) -> None:
        """Remove what workers that were killed were writing."""
        for name in self.names():
            if _TEMPORARY.fullmatch(name):
                self._remove(name)

    def release(self) -> None:
        """Let other processes use the folder."""
        self._lock.close()

    # ------------------------------------------------------------------------------------- shards

    def records(self) -> dict[str, dict[str, Any]]:
        """Return the record of each shard that is there."""
        found = {}
        for name in self.shards():
            with self.open_shard(name) as file:
                found[name] = self.note(name, file, RECORD)
        return found

    def shards(self) -> list[str]:
        """Return the names of the shards that are there, in order."""
        return sorted(name for name in self.names() if _SHARD.fullmatch(name))

    def open_shard(self, name: str) -> Any:
        """Open a shard, a `pyarrow.parquet.ParquetFile`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(f"{self._path}/{name}", filesystem=self._filesystem)
        except (pa.ArrowException, OSError) as error:
            raise self.damaged(name, error) from error

    def note(self, name: str, file: Any, key: bytes) -> Any:
        """Return what stands in the footer of a shard."""
        try:
            return json.loads(file.metadata.metadata[key])
        except (ValueError, KeyError, TypeError) as error:
            raise self.damaged(name, error) from error

    def damaged(self, name: str, error: object) -> DataError:
        """Return the error for a shard that cannot be read."""
        return DataError(
            f"The shard {self.place}/{name} is damaged ({error}). Delete it and resume."
        )

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file that takes its name when it is whole."""
        if self._is_local:
            with replace_file(Path(self._path) / name) as temporary, temporary.open("wb") as file:
                yield file
            return
        beside = f"{self._path}/.{name}.{uuid.uuid4().hex[:8]}.tmp"
        try:
            self._filesystem.create_dir(self._path, recursive=True)
            with self._filesystem.open_output_stream(beside) as stream:
                yield stream
            self._filesystem.move(beside, f"{self._path}/{name}")
        except OSError as error:
            raise output_error(Path(f"{self.place}/{name}"), error) from error

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Write a small file."""
        with self.writing(name) as file:
            file.write((json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a small file."""
        source = f"{self.place}/{name}"
        try:
            with self._filesystem.open_input_stream(f"{self._path}/{name}") as stream:
                text = stream.read()
        except OSError as error:
            raise DataError(f"{source} cannot be read: {error}. {_START_AGAIN}") from error
        return parse_json(text, source, error=DataError, hint=_START_AGAIN)

    def names(self) -> list[str]:
        """Return the names of all files; none if there is no folder."""
        from pyarrow import fs

        try:
            selector = fs.FileSelector(self._path, allow_not_found=True)
            return [entry.base_name for entry in self._filesystem.get_file_info(selector)]
        except OSError as error:
            raise output_error(Path(self.place), error) from error

    def _remove(self, name: str) -> None:
        try:
            self._filesystem.delete_file(f"{self._path}/{name}")
        except OSError as error:
            raise output_error(Path(self.place), error) from error
