"""Outputs of a run, and directories of finished chunks.

An output is a directory of shards (shards.py), a single file whose chunks are kept in a temporary
directory until it is complete (output.py), or a token index (search/build.py). Both directories of
chunks contain:

manifest.json         model, settings and documents; written once, at the start
000012.parquet        chunk 12 of a directory of shards
000012.safetensors    chunk 12 of a single file (formats/block.py)
.lock                 the run lock (storage/lock.py)

Every file is written atomically: a chunk is finished if and only if its file exists. If two workers
write the same chunk, the bytes are the same.
"""

from __future__ import annotations

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from elmokit.bulk.chunks import is_remote
from elmokit.bulk.formats.block import Block
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.reading import About
from elmokit.embed.blocks import StateArrays
from elmokit.errors import ConfigError, DataError, OutputError, output_error
from elmokit.storage.atomic import replace_file
from elmokit.storage.lock import run_lock
from elmokit.storage.manifest import check_format, parse_json
from elmokit.storage.regular import read_bounded, resolve_output

MANIFEST = "manifest.json"
VERSION = 3

#: The record of a chunk: its input and its sizes, as JSON values.
Record = dict[str, Any]
#: The records of chunks by their numbers.
Records = dict[int, Record]
#: Everything that determines the output of a run, except the text, as JSON values.
Manifest = Mapping[str, Any]
#: Seconds that each stage was busy.
Times = dict[str, float]
#: Called with the number of each finished chunk.
OnFinished = Callable[[int], None]

_START_AGAIN = "Start again with --overwrite."


class Output(ABC):
    """Where a run writes its chunks; it can be sent to other processes.

    Attributes:
        path: The file or directory.
        resume: Continue an earlier run, if there is one.
        overwrite: Replace an existing output; without `resume`, also discard an earlier run.
        with_texts: Whether it stores the original sentences.
        layout: The layout of the vectors, set by `prepare`.
        documents: The names of all documents, set by `prepare`.
    """

    with_texts = False
    layout: Layout
    documents: tuple[str, ...]

    def __init__(self, path: Path, *, resume: bool = False, overwrite: bool = False) -> None:
        self.path = path
        self.resume = resume
        self.overwrite = overwrite

    def prepare(self, layout: Layout, documents: tuple[str, ...]) -> dict[str, Any]:
        """Set attributes; return values for the manifest of the run, besides the settings."""
        self.layout, self.documents = layout, documents
        return {}

    def finished(self, manifest: Manifest, digest: Callable[[], str]) -> dict[str, int] | None:
        """Return the counts of the output if the same run has already finished it, otherwise None.

        Args:
            manifest: The model and settings of this run.
            digest: Reads the text and returns its digest.
        """
        return None

    @abstractmethod
    def open_run(self, manifest: Manifest) -> AbstractContextManager[bool]:
        """Lock the output, and start a run or continue an earlier one.

        Args:
            manifest: The model, settings and documents of the run.

        Yields:
            Whether it continues an earlier run.

        Raises:
            OutputError: Another process uses the output.
            ConfigError: The model, settings or documents of the earlier run were different.
        """

    @abstractmethod
    def records(self) -> Records:
        """Return the records of the finished chunks by their numbers."""

    @abstractmethod
    def write(self, block: Block) -> int:
        """Write a chunk; return its size in bytes."""

    def state_after(self, number: int) -> StateArrays:
        """Return the final state of a chunk with state="carry"."""
        raise NotImplementedError

    @abstractmethod
    def assembling(
        self, about: About, times: Times, records: Records
    ) -> AbstractContextManager[OnFinished]:
        """Complete the output at the end of the block.

        Args:
            about: Returns the description of the run.
            times: The time that this takes is added to it.
            records: The chunks that are finished at the start.
        """


class ChunkStore(Output):
    """A directory of chunks, local or at a URL that pyarrow supports (s3://...).

    Args:
        path: The output.
        place: The path or URL of the directory.
        suffix: The suffix of the chunks.
        how: `resume` and `overwrite`.
    """

    def __init__(self, path: Path, place: str, suffix: str, **how: bool) -> None:
        super().__init__(path, **how)
        self.place = place
        self.suffix = suffix

    @contextmanager
    def open_run(self, manifest: Manifest) -> Iterator[bool]:
        """Lock the directory, and start a run or continue an earlier one; see `Output`."""
        try:
            with ExitStack() as stack:
                if self._remote is None:
                    stack.enter_context(run_lock(Path(self._path)))
                is_resumed = self.resume and self.has_run
                if is_resumed:
                    self._check_same_run(manifest)
                else:
                    self.clear()
                    self.write_json(MANIFEST, {"version": VERSION, **manifest})
                self._remove_temporary_files()
                try:
                    yield is_resumed
                finally:
                    self._remove_temporary_files()
                    if not self.chunks():
                        self._remove(MANIFEST)
        finally:
            if self._remote is None:
                with suppress(OSError):  # it is not empty
                    Path(self._path).rmdir()

    def _check_same_run(self, manifest: Manifest) -> None:
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
        check_same_settings(
            f"The interrupted run in {self.place} cannot be resumed", before, manifest
        )

    @property
    def has_run(self) -> bool:
        """Whether a run was started here."""
        return MANIFEST in self.names()

    def _remove_temporary_files(self) -> None:
        """Remove what killed processes have left behind."""
        for name in self.names():
            if name.startswith(".") and name.endswith(".tmp"):
                self._remove(name)

    def clear(self) -> None:
        """Remove the manifest and all chunks."""
        for name in [MANIFEST, *self.chunks()]:
            self._remove(name)

    def chunks(self) -> list[str]:
        """Return the names of the finished chunks, in order."""
        names = (name for name in self.names() if name.endswith(self.suffix))
        return sorted(name for name in names if name.removesuffix(self.suffix).isdecimal())

    def chunk_name(self, number: int) -> str:
        """Return the name of a chunk."""
        return f"{number:06d}{self.suffix}"

    # ------------------------------------------------------------------------------------ files

    @cached_property
    def _location(self) -> tuple[Any, str]:
        if not is_remote(self.place):
            return None, str(resolve_output(self.place))
        from pyarrow import fs

        try:
            filesystem, path = fs.FileSystem.from_uri(self.place)
        except (OSError, ValueError) as error:
            raise OutputError(f"Cannot write {self.place}: {error}") from error
        return filesystem, path

    @property
    def _remote(self) -> Any:
        """The pyarrow file system; None for local directories."""
        return self._location[0]

    @property
    def _path(self) -> str:
        return self._location[1]

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file that is written atomically."""
        remote, path = self._location
        if remote is None:
            with replace_file(Path(path, name)) as temporary, temporary.open("wb") as file:
                yield file
            return
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
            if self._remote is None:
                text = read_bounded(Path(self._path, name), DataError)
            else:
                with self._remote.open_input_stream(f"{self._path}/{name}") as stream:
                    text = stream.read()
        except OSError as error:
            raise DataError(f"Cannot read {source}: {error}. {_START_AGAIN}") from error
        return parse_json(text, source, error=DataError, hint=_START_AGAIN)

    def names(self) -> list[str]:
        """Return the names of all files; none if the directory does not exist."""
        try:
            if self._remote is None:
                folder = Path(self._path)
                return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
            from pyarrow import fs

            selector = fs.FileSelector(self._path, allow_not_found=True)
            return [entry.base_name for entry in self._remote.get_file_info(selector)]
        except OSError as error:
            raise output_error(Path(self.place), error) from error

    def _remove(self, name: str) -> None:
        try:
            if self._remote is None:
                Path(self._path, name).unlink(missing_ok=True)
            elif name in self.names():
                self._remote.delete_file(f"{self._path}/{name}")
        except OSError as error:
            raise output_error(Path(self.place), error) from error


def check_same_settings(problem: str, before: Manifest, now: Manifest) -> None:
    """Raise a `ConfigError` that lists the differences between the settings of two runs."""
    differences = [
        f"{name} was {before.get(name)!r} and is now {now.get(name)!r}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    if differences:
        raise ConfigError(
            f"{problem}, because it was started with different settings: "
            f"{'; '.join(differences)}. Use the same settings, or start again with --overwrite."
        )
