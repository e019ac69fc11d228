"""Storage of finished chunks: a directory of shards, or the temporary directory of a file.

manifest.json         model, settings and documents; written once, at the start
000012.parquet        chunk 12 of a directory of shards, as rows; its footer contains its record and
                      the sentences without tokens, which have no rows
000012.safetensors    chunk 12 of a single file (formats/block.py), in `.FILE.chunks` next to it
shards.json           all shards with their records; written last, so that readers
                      (formats/sharded.py) know that the directory is complete
.lock                 the run lock (storage/lock.py)

Every file is written atomically: a chunk is finished if and only if its file exists. If two workers
write the same chunk, the bytes are the same. A directory of shards can be local, or at a URL that
pyarrow supports (s3://...); several machines need a shared one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np

from elmokit.bulk.chunks import is_remote
from elmokit.bulk.formats.block import Block, open_block, save_block
from elmokit.bulk.formats.columns import Array
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.parquet import write_shard
from elmokit.embed.embedder import StateArrays
from elmokit.errors import ConfigError, DataError, OutputError, output_error
from elmokit.storage.atomic import replace_file
from elmokit.storage.lock import run_lock
from elmokit.storage.manifest import check_format, parse_json
from elmokit.storage.regular import read_bounded, resolve_output

MANIFEST = "manifest.json"
SHARDS = "shards.json"
RECORD = "elmokit.shard"
EMPTY = "elmokit.empty"
VERSION = 3

Record = dict[str, Any]

_START_AGAIN = "Start again with --overwrite."
_STATE = "state."


@dataclass(frozen=True)
class ChunkStore:
    """A directory of chunks; it can be sent to other processes.

    Attributes:
        place: Its path or URL.
        suffix: ".parquet" for shards, ".safetensors" for the chunks of one file.
        filesystem: A pyarrow file system that contains `place`. Default: determined by the URL.
    """

    place: str
    suffix: str
    filesystem: Any = None

    # ------------------------------------------------------------------------------------ a run

    @contextmanager
    def open_run(self, manifest: Mapping[str, Any], *, resume: bool) -> Iterator[bool]:
        """Lock the directory, and start a run or continue an earlier one.

        Args:
            manifest: The model, settings and documents of the run.
            resume: Continue an earlier run; otherwise its chunks are removed.

        Yields:
            Whether it continues an earlier run.

        Raises:
            OutputError: Another process uses the directory.
            ConfigError: The model, settings or documents of the earlier run were different.
        """
        try:
            with ExitStack() as stack:
                if self._is_local:
                    stack.enter_context(run_lock(Path(self._path)))
                is_resumed = resume and self.has_run
                if is_resumed:
                    self._check_same_run(manifest)
                else:
                    self.clear()
                    self.write_json(MANIFEST, {"version": VERSION, **manifest})
                self.remove_unfinished()
                try:
                    yield is_resumed
                finally:
                    self.remove_unfinished()
                    if not self.chunks():
                        self._remove(MANIFEST)
        finally:
            if self._is_local:
                with suppress(OSError):  # it is not empty
                    Path(self._path).rmdir()

    def _check_same_run(self, manifest: Mapping[str, Any]) -> None:
        before = self.read_json(MANIFEST)
        source = f"{self.place}/{MANIFEST}"
        check_format(
            before,
            source,
            None,
            VERSION,
            oldest=VERSION,
            key="version",
            error=DataError,
            hint=_START_AGAIN,
        )
        del before["version"]
        if differences := changed_settings(before, manifest):
            raise ConfigError(
                f"The interrupted run in {self.place} cannot be resumed, because it was started "
                f"with different settings: {differences}. Use the same settings to resume, or "
                "start again with --overwrite."
            )

    @property
    def has_run(self) -> bool:
        """Whether a run was started here."""
        return MANIFEST in self.names()

    def remove_unfinished(self) -> None:
        """Remove the temporary files of processes that were killed."""
        for name in self.names():
            if name.startswith(".") and name.endswith(".tmp"):
                self._remove(name)

    def clear(self) -> None:
        """Remove all chunks; the list of shards first, so that it never lists removed ones."""
        for name in [SHARDS, MANIFEST, *self.chunks()]:
            self._remove(name)

    # ----------------------------------------------------------------------------------- chunks

    def chunks(self) -> list[str]:
        """Return the names of the finished chunks, in order."""
        names = (name for name in self.names() if name.endswith(self.suffix))
        return sorted(name for name in names if name.removesuffix(self.suffix).isdecimal())

    def records(self) -> dict[int, Record]:
        """Return the records of the finished chunks by their numbers."""
        found = {}
        for name in self.chunks():
            if self.suffix == ".safetensors":
                record = dict(self.block(int(name.removesuffix(self.suffix))).record)
            else:
                with self.open_shard(name) as file:
                    record = self.note(name, file, RECORD)
            found[int(record["chunk"])] = record
        return found

    def block(self, number: int) -> Block:
        """Open a chunk of one file."""
        return open_block(Path(self._path) / self.chunk_name(number))

    def state_after(self, number: int) -> StateArrays:
        """Return the final state of a chunk with state="carry"."""
        block = self.block(number)
        return {name: block.read(_STATE + name) for name in ("cell", "hidden")}

    def chunk_name(self, number: int) -> str:
        """Return the name of a chunk."""
        return f"{number:06d}{self.suffix}"

    def write(
        self,
        block: Block,
        arrays: Mapping[str, Array],
        *,
        layout: Layout,
        documents: Sequence[str],
        carried: StateArrays | None,
    ) -> int:
        """Write a chunk; return its size in bytes."""
        name = self.chunk_name(block.record["chunk"])
        if self.suffix == ".safetensors":
            state = {_STATE + key: values for key, values in (carried or {}).items()}
            with replace_file(Path(self._path) / name) as temporary:
                save_block(temporary, block, {**arrays, **state})
                return temporary.stat().st_size
        empty = np.flatnonzero(block.read("lengths") == 0).tolist()
        notes = {RECORD: block.record, EMPTY: empty}
        with self.writing(name) as file:
            write_shard(file, block, layout, documents, notes)
            return int(file.tell())

    def open_shard(self, name: str) -> Any:
        """Open a shard, a `pyarrow.parquet.ParquetFile`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(
                f"{self._path}/{name}", filesystem=self._remote, page_checksum_verification=True
            )
        except (pa.ArrowException, OSError) as error:
            raise self.damaged(name, error) from error

    def note(self, name: str, file: Any, key: str) -> Any:
        """Return a value from the footer of a shard."""
        try:
            return json.loads(file.metadata.metadata[key.encode()])
        except (ValueError, KeyError, TypeError) as error:
            raise self.damaged(name, error) from error

    def damaged(self, name: str, error: object) -> DataError:
        """Return the error for a damaged shard."""
        return DataError(
            f"The shard {self.place}/{name} is damaged ({error}). Delete it and resume."
        )

    # ------------------------------------------------------------------------------------ files

    @property
    def _is_local(self) -> bool:
        return self.filesystem is None and not is_remote(self.place)

    @property
    def _remote(self) -> Any:
        """The pyarrow file system; None for local directories."""
        if self.filesystem is not None or self._is_local:
            return self.filesystem
        return self._resolve()[0]

    @property
    def _path(self) -> str:
        if self._is_local:
            return str(resolve_output(self.place))
        return self.place if self.filesystem is not None else str(self._resolve()[1])

    def _resolve(self) -> tuple[Any, str]:
        from pyarrow import fs

        try:
            filesystem, path = fs.FileSystem.from_uri(self.place)
        except (OSError, ValueError) as error:
            raise OutputError(f"Cannot write {self.place}: {error}") from error
        return filesystem, path

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file that is written atomically."""
        if self._is_local:
            with replace_file(Path(self._path) / name) as temporary, temporary.open("wb") as file:
                yield file
            return
        remote, path = self._remote, self._path
        temporary_name = f"{path}/.{name}.{uuid.uuid4().hex[:8]}.tmp"
        try:
            remote.create_dir(path, recursive=True)
            with remote.open_output_stream(temporary_name) as stream:
                yield stream
            remote.move(temporary_name, f"{path}/{name}")
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
            if self._is_local:
                text = read_bounded(Path(self._path) / name, DataError)
            else:
                with self._remote.open_input_stream(f"{self._path}/{name}") as stream:
                    text = stream.read()
        except OSError as error:
            raise DataError(f"Cannot read {source}: {error}. {_START_AGAIN}") from error
        return parse_json(text, source, error=DataError, hint=_START_AGAIN)

    def names(self) -> list[str]:
        """Return the names of all files; none if the directory does not exist."""
        try:
            if self._is_local:
                folder = Path(self._path)
                return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
            from pyarrow import fs

            selector = fs.FileSelector(self._path, allow_not_found=True)
            return [entry.base_name for entry in self._remote.get_file_info(selector)]
        except OSError as error:
            raise output_error(Path(self.place), error) from error

    def _remove(self, name: str) -> None:
        try:
            if self._is_local:
                (Path(self._path) / name).unlink(missing_ok=True)
            elif name in self.names():
                self._remote.delete_file(f"{self._path}/{name}")
        except OSError as error:
            raise output_error(Path(self.place), error) from error


def changed_settings(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe the differences between the settings of two runs; "" if there are none."""
    return "; ".join(
        f"{name} was {before.get(name)!r} and is now {now.get(name)!r}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    )
