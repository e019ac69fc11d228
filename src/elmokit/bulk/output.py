"""The output of `elmo embed`: a single vector file, or a directory of shards (shards.py).

The chunks of a single file are stored in the directory `.FILE.chunks` next to the file until the
file is complete. A thread copies them to the file: for `.h5` and `.parquet`, as soon as a chunk and
all earlier chunks are finished; for `.npz` and `.safetensors`, at the end, because these formats
start with the lengths of the arrays. A run needs twice as much disk space as the output.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from queue import SimpleQueue
from typing import Any

from elmokit.bulk.formats import check_package, detect_format, open_vectors
from elmokit.bulk.formats.block import Block, open_block, save_block
from elmokit.bulk.formats.reading import GetMetadata
from elmokit.bulk.input import is_remote
from elmokit.bulk.job import timed
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.shards import ShardDirectory
from elmokit.bulk.store import MANIFEST, ChunkStore, Manifest, OnFinished, Record, Records, Times
from elmokit.embed.blocks import StateArrays
from elmokit.errors import ElmoError, OutputError, output_error
from elmokit.storage.atomic import replace_file, sync_directory


def make_output(
    out: str | Path, *, resume: bool = False, overwrite: bool = False
) -> FileOutput | ShardDirectory:
    """Return the output for a path or URL. Names without an extension are directories of shards."""
    name = str(out)
    if name.endswith("/") or is_remote(name) or not PurePath(name).suffix:
        return ShardDirectory(name, resume=resume, overwrite=overwrite)
    return FileOutput(Path(name), resume=resume, overwrite=overwrite)


def count_finished_sentences(out: str | Path) -> int:
    """Return the number of finished sentences of an interrupted run with the output `out`."""
    return sum(int(record["sentences"]) for record in make_output(out).records().values())


class FileOutput(ChunkStore):
    """A single vector file and the directory of its chunks.

    Args:
        path: The file. The extension determines the format.
        flags: The arguments `resume` and `overwrite` of `Output`.
    """

    def __init__(self, path: Path, **flags: bool) -> None:
        detect_format(path)  # checks the extension
        check_package("safetensors", "Writing a single vector file")
        super().__init__(path, str(path.with_name(f".{path.name}.chunks")), ".safetensors", **flags)
        self.with_texts = path.suffix.lower() in (".h5", ".hdf5")

    def check(self, documents: Sequence[str], settings: EmbedSettings) -> None:
        """Raise an error if the file cannot be written, before a model is loaded."""
        if self.path.is_dir():
            raise OutputError(f"{self.path} is a directory; expected the name of a file.")
        for name in documents:
            if self.path.exists() and Path(name).exists() and self.path.samefile(name):
                raise OutputError(f"{self.path} is both input and output. Choose another output.")
        if self.path.exists() and not (self.resume or self.overwrite):
            raise self._already_exists()
        if MANIFEST in self.names() and not (self.resume or self.overwrite):
            raise OutputError(
                f"{self.url} contains the finished chunks of an unfinished run. If it was "
                "interrupted, continue it with --resume, or discard it with --overwrite."
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path.parent):
                pass
        except OSError as error:
            raise output_error(self.path, error) from error

    def _already_exists(self) -> OutputError:
        return OutputError(
            f"{self.path} already exists. Choose another name, or replace it with --overwrite."
        )

    def final_counts(self, manifest: Manifest, digest: Callable[[], str]) -> dict[str, int] | None:
        """Return the counts of the file if the same run has already finished; see `Output`."""
        if not self.path.exists():
            return None
        metadata: dict[str, Any] = {}
        if self.resume:
            with suppress(ElmoError), open_vectors(self.path) as stored:  # may not be a vector file
                metadata = stored.metadata
        if metadata.get("run") == manifest and metadata.get("digest") == digest():
            if Path(self.url).exists():  # the run was killed before it could remove its chunks
                with self.open_run(manifest):
                    self.clear()
            return dict(metadata["counts"])
        if not self.overwrite:
            raise self._already_exists()
        return None

    def read_record(self, name: str) -> Record:
        """Return the record of a chunk."""
        return dict(open_block(Path(self.root, name)).record)

    def write(self, block: Block) -> int:
        """Write a chunk; see `Output`."""
        with self.open_for_writing(self.chunk_name(block.record["chunk"])) as file:
            save_block(file, block)
            return file.tell()

    def state_after(self, number: int) -> StateArrays:
        """Return the LSTM state at the end of a chunk; see `Output`."""
        block = self._open_chunk(number)
        return {name: block.read(f"state.{name}") for name in ("cell", "hidden")}

    def _open_chunk(self, number: int) -> Block:
        return open_block(Path(self.root, self.chunk_name(number)))

    @contextmanager
    def assemble(
        self, metadata: GetMetadata, times: Times, records: Records
    ) -> Iterator[OnFinished]:
        """Assemble the file from its chunks in a separate thread; see `Output`."""
        finished: SimpleQueue[int | BaseException | None] = SimpleQueue()
        # If this process is killed, the next run removes the temporary file.
        temporary = Path(self.url) / ".output.tmp"
        times["assemble"] = 0.0

        def write() -> None:
            chunks = self._chunks_in_order(finished, times)
            with timed(times, "assemble"), replace_file(self.path, temporary=temporary):
                detect_format(self.path).write(temporary, chunks, self.layout, metadata)

        with ThreadPoolExecutor(1) as pool:
            writer = pool.submit(write)

            def add(number: int) -> None:
                if writer.done():  # the thread has failed
                    writer.result()
                finished.put(number)

            try:
                for number in records:
                    add(number)
                yield add
            except BaseException as error:
                finished.put(error)
                raise
            finished.put(None)
            writer.result()
        sync_directory(self.path.parent)  # the file must be on disk before its chunks are removed
        self.clear()

    def _chunks_in_order(
        self, finished: SimpleQueue[int | BaseException | None], times: Times
    ) -> Iterator[Block]:
        """Yield finished chunks in order, until the queue returns None (the end) or an error."""
        ready: set[int] = set()
        number = 0
        while True:
            while number in ready:
                yield self._open_chunk(number)
                number += 1
            started = time.perf_counter()
            item = finished.get()
            times["assemble"] -= time.perf_counter() - started  # do not count waiting time
            if item is None:
                return
            if isinstance(item, BaseException):
                raise item  # makes `replace_file` remove the incomplete file
            ready.add(item)
