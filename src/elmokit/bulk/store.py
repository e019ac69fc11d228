"""The outputs of a run, and directories of finished chunks.

An output is a directory of shards (shards.py), a single file whose chunks are stored in a temporary
directory until the file is complete (output.py), or a token index (search/build.py). A directory of
shards and the temporary directory contain:

manifest.json         model, settings and documents; written at the start of the run
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
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from elmokit.bulk.formats.block import Block
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.reading import GetMetadata
from elmokit.bulk.input import is_remote
from elmokit.embed.blocks import StateArrays
from elmokit.errors import ConfigError, DataError, OutputError, output_error
from elmokit.storage.atomic import replace_file
from elmokit.storage.lock import remove_if_empty, run_lock
from elmokit.storage.manifest import parse_json
from elmokit.storage.regular import check_regular_files, read_bounded, resolve_output

MANIFEST = "manifest.json"
VERSION = 3

#: The record of a chunk: a description of its input, and its sizes, as JSON values.
Record = dict[str, Any]
#: The records of chunks by number.
Records = dict[int, Record]
#: Everything that determines the output of a run, except the text, as JSON values.
Manifest = Mapping[str, Any]
#: The busy time of each stage, in seconds.
Times = dict[str, float]
#: Called with the number of each finished chunk.
OnFinished = Callable[[int], None]

_START_AGAIN = "Start again with --overwrite."


class Output(ABC):
    """The destination of the chunks of a run. Can be sent to worker processes.

    Attributes:
        path: The file or directory.
        resume: Continue an earlier run, if there is one.
        overwrite: Replace an existing output. Without `resume`, also discard an earlier run.
        with_texts: Whether to store the original sentences.
        layout: The layout of the vectors, set by `prepare`.
        documents: The paths or URLs of all documents, set by `prepare`.
    """

    with_texts = False
    layout: Layout
    documents: tuple[str, ...]

    def __init__(self, path: Path, *, resume: bool = False, overwrite: bool = False) -> None:
        self.path = path
        self.resume = resume
        self.overwrite = overwrite

    def prepare(self, layout: Layout, documents: tuple[str, ...]) -> dict[str, Any]:
        """Set `layout` and `documents`, and return additional values for the manifest."""
        self.layout, self.documents = layout, documents
        return {}

    def final_counts(self, manifest: Manifest, digest: Callable[[], str]) -> dict[str, int] | None:
        """Return the counts of the output if the same run has already finished, otherwise None.

        Args:
            manifest: The model and settings of this run.
            digest: Called to read the text and compute its digest.
        """
        return None

    @abstractmethod
    def open_run(self, manifest: Manifest) -> AbstractContextManager[bool]:
        """Lock the output, and start a run or continue an earlier one.

        Args:
            manifest: The model, settings and documents of the run.

        Yields:
            Whether an earlier run is continued.

        Raises:
            OutputError: Another process is using the output.
            ConfigError: The model, settings or documents differ from those of the earlier run.
        """

    @abstractmethod
    def records(self) -> Records:
        """Return the records of the finished chunks by number."""

    @abstractmethod
    def write(self, block: Block) -> int:
        """Write a chunk and return its size in bytes."""

    def state_after(self, number: int) -> StateArrays:
        """Return the LSTM state at the end of a chunk, which is stored if state="carry"."""
        raise NotImplementedError

    @abstractmethod
    def assemble(
        self, metadata: GetMetadata, times: Times, records: Records
    ) -> AbstractContextManager[OnFinished]:
        """Return a context manager that completes the output when it exits without an error.

        Args:
            metadata: Returns the description of the run.
            times: The busy times, to which the stage "assemble" is added.
            records: The records of the chunks that are already finished.
        """


class ChunkStore(Output):
    """A directory of chunks, local or at a URL that pyarrow supports (s3://...).

    Args:
        path: The output file or directory.
        url: The path or URL of the directory of chunks.
        suffix: The file name suffix of chunks.
        flags: The arguments `resume` and `overwrite` of `Output`.

    Attributes:
        remote: The pyarrow file system; None for local directories.
        root: The path of the directory in its file system.
    """

    def __init__(self, path: Path, url: str, suffix: str, **flags: bool) -> None:
        super().__init__(path, **flags)
        self.url = url
        self.suffix = suffix
        self.remote: Any = None
        if not is_remote(url):
            self.root = str(resolve_output(url))
            return
        from pyarrow import fs

        try:
            self.remote, self.root = fs.FileSystem.from_uri(url)
        except (OSError, ValueError) as error:
            raise OutputError(f"Cannot write {url}: {error}") from error

    @contextmanager
    def open_run(self, manifest: Manifest) -> Iterator[bool]:
        """Lock the directory, and start a run or continue an earlier one; see `Output`."""
        with ExitStack() as stack:
            if self.remote is None:
                stack.callback(remove_if_empty, Path(self.root))
                stack.enter_context(run_lock(Path(self.root)))
            is_resumed = self.resume and MANIFEST in self.names()
            if is_resumed:
                check_same_settings(
                    f"The interrupted run in {self.url} cannot be resumed",
                    self.read_manifest(),
                    manifest,
                )
            else:
                self.clear()
                self.write_json(MANIFEST, {"version": VERSION, **manifest})
            self._remove_temporary_files()
            try:
                yield is_resumed
            finally:
                self._remove_temporary_files()
                if not self.chunk_names():
                    self._remove(MANIFEST)

    def read_manifest(self) -> dict[str, Any]:
        """Return the manifest after checking and removing its version."""
        if self.remote is None:
            check_regular_files(Path(self.root), DataError)
        manifest = self.read_json(MANIFEST)
        version = manifest.pop("version", None)
        if version != VERSION:
            raise DataError(
                f"{self.url} has format version {version}, but elmokit expects version "
                f"{VERSION}. Start again with --overwrite, or use the version of elmokit that "
                "wrote it."
            )
        return manifest

    def _remove_temporary_files(self) -> None:
        """Remove the temporary files of killed processes."""
        for name in self.names():
            if name.startswith(".") and name.endswith(".tmp"):
                self._remove(name)

    def clear(self) -> None:
        """Remove the manifest and all chunks."""
        for name in [MANIFEST, *self.chunk_names()]:
            self._remove(name)

    def records(self) -> Records:
        """Return the records of the finished chunks; see `Output`."""
        records: Records = {}
        for name in self.chunk_names():
            record = self.read_record(name)
            number = record.get("chunk")
            if type(number) is not int or name != self.chunk_name(number):
                raise DataError(
                    f"{self.url}/{name} contains chunk {number!r}, which does not match its file "
                    "name. Delete the file and resume."
                )
            records[number] = record
        return records

    @abstractmethod
    def read_record(self, name: str) -> Record:
        """Return the record of a chunk."""

    def chunk_names(self) -> list[str]:
        """Return the file names of the finished chunks, in order."""
        names = (name for name in self.names() if name.endswith(self.suffix))
        return sorted(name for name in names if name.removesuffix(self.suffix).isdecimal())

    def chunk_name(self, number: int) -> str:
        """Return the file name of a chunk."""
        return f"{number:06d}{self.suffix}"

    # ------------------------------------------------------------------------------------ files

    @contextmanager
    def open_for_writing(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file for writing. The file appears in the directory when it is complete."""
        if self.remote is None:
            with replace_file(Path(self.root, name)) as temporary, temporary.open("wb") as file:
                yield file
            return
        temporary_name = f"{self.root}/.{name}.{uuid.uuid4().hex[:8]}.tmp"
        try:
            self.remote.create_dir(self.root, recursive=True)
            with self.remote.open_output_stream(temporary_name) as stream:
                yield stream
            self.remote.move(temporary_name, f"{self.root}/{name}")
        except OSError as error:
            raise output_error(Path(f"{self.url}/{name}"), error) from error

    def write_json(self, name: str, values: Mapping[str, Any]) -> None:
        """Write a JSON file."""
        with self.open_for_writing(name) as file:
            file.write((json.dumps(values, indent=1, ensure_ascii=False) + "\n").encode())

    def read_json(self, name: str) -> dict[str, Any]:
        """Read a JSON file."""
        source = f"{self.url}/{name}"
        try:
            if self.remote is None:
                text = read_bounded(Path(self.root, name), DataError)
            else:
                with self.remote.open_input_stream(f"{self.root}/{name}") as stream:
                    text = stream.read()
        except OSError as error:
            raise DataError(f"Cannot read {source}: {error}. {_START_AGAIN}") from error
        return parse_json(text, source, error=DataError, hint=_START_AGAIN)

    def names(self) -> list[str]:
        """Return the names of all files, or an empty list if the directory does not exist."""
        try:
            if self.remote is None:
                folder = Path(self.root)
                return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []
            from pyarrow import fs

            selector = fs.FileSelector(self.root, allow_not_found=True)
            return [entry.base_name for entry in self.remote.get_file_info(selector)]
        except OSError as error:
            raise output_error(Path(self.url), error) from error

    def _remove(self, name: str) -> None:
        try:
            if self.remote is None:
                Path(self.root, name).unlink(missing_ok=True)
            elif name in self.names():
                self.remote.delete_file(f"{self.root}/{name}")
        except OSError as error:
            raise output_error(Path(self.url), error) from error


def check_same_settings(problem: str, previous: Manifest, current: Manifest) -> None:
    """Raise a `ConfigError` that lists the differences if the settings of two runs differ."""
    differences = [
        f"{name} was {previous.get(name)!r} and is now {current.get(name)!r}"
        for name in sorted(previous.keys() | current.keys())
        if previous.get(name) != current.get(name)
    ]
    if differences:
        raise ConfigError(
            f"{problem}, because the settings differ: {'; '.join(differences)}. Use the same "
            "settings, or start again with --overwrite."
        )
