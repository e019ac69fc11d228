"""The outputs of embedding a corpus: one vector file, or a directory of shards.

The chunks of a single file are kept in a temporary directory next to it until the file is complete.
A thread adds them to the file as they are finished (`.h5`, `.parquet`), or at the end (`.npz`,
`.safetensors`, which start with the lengths of their arrays). Until then, the output needs twice
its size on disk.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path, PurePath
from queue import SimpleQueue
from typing import Any

from elmokit.bulk.chunks import is_remote
from elmokit.bulk.formats.block import Block
from elmokit.bulk.formats.formats import check_package, format_of, open_vectors
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.parquet import check_available
from elmokit.bulk.formats.reading import About
from elmokit.bulk.job import Times, timed
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.store import MANIFEST, SHARDS, ChunkStore, Record
from elmokit.errors import ConfigError, ElmoError, OutputError, output_error
from elmokit.storage.atomic import replace_file, sync_directory
from elmokit.storage.lock import check_not_in_use
from elmokit.storage.regular import resolve_output

#: Called with the number of each finished chunk.
OnFinished = Callable[[int], None]


def make_output(out: str | Path) -> FileOutput | FolderOutput:
    """Return the output with this name; a name without a suffix is a directory."""
    name = str(out)
    if name.endswith("/") or is_remote(name) or not PurePath(name).suffix:
        return FolderOutput(name)
    return FileOutput(Path(name))


def kept_sentences(out: str | Path) -> int:
    """Count the sentences that an interrupted run to `out` has finished."""
    records = make_output(out).store.records().values()
    return sum(int(record["sentences"]) for record in records)


class FolderOutput:
    """A directory of Parquet shards."""

    def __init__(self, place: str) -> None:
        check_available()
        self.path = Path(place)
        self.store = ChunkStore(place, ".parquet")
        self.with_texts = False

    def check(
        self, documents: Sequence[str], settings: EmbedSettings, *, resume: bool, overwrite: bool
    ) -> None:
        """Raise an error if the directory cannot be written, before a model is loaded."""
        if settings.state == "carry":
            raise ConfigError(
                "state='carry' requires a single output file, such as vectors.h5, because shards "
                "are computed independently. Use state='reset' or 'warm' for a directory."
            )
        if not is_remote(self.store.place) and self.path.is_file():
            raise OutputError(f"{self.path} is a file; expected the name of a new directory.")
        names = self.store.names()
        if MANIFEST not in names and any(not name.startswith(".") for name in names):
            raise OutputError(f"The directory {self.path} contains other files. Choose a new name.")
        if MANIFEST in names and not (resume or overwrite):
            raise OutputError(
                f"{self.path} contains the shards of an earlier run. Continue it with --resume, or "
                "replace it with --overwrite."
            )

    def manifest(self, layout: Layout, documents: Sequence[str]) -> dict[str, Any]:
        """Return what readers of the directory need, in addition to the settings."""
        return {"n_layers": layout.n_layers, "dim": layout.dim, "documents": list(documents)}

    @contextmanager
    def assembling(
        self, layout: Layout, about: About, times: Times, records: Mapping[int, Record]
    ) -> Iterator[OnFinished]:
        """Write the list of shards when all are finished."""
        yield lambda _: None
        shards = [
            {"shard": self.store.chunk_name(number), **records[number]}
            for number in sorted(records)
        ]
        self.store.write_json(SHARDS, {"shards": shards})


class FileOutput:
    """One vector file; its suffix selects the format."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._format = format_of(path)
        check_package("safetensors", "Embedding into a file (a directory of shards needs pyarrow)")
        self.store = ChunkStore(str(path.with_name(f".{path.name}.chunks")), ".safetensors")
        self.with_texts = path.suffix.lower() in (".h5", ".hdf5")

    def check(
        self, documents: Sequence[str], settings: EmbedSettings, *, resume: bool, overwrite: bool
    ) -> None:
        """Raise an error if the file cannot be written, before a model is loaded."""
        resolve_output(self.path)  # rejects invalid names
        if self.path.is_dir():
            raise OutputError(f"{self.path} is a directory; expected the name of a file.")
        for name in documents:
            if self.path.exists() and Path(name).exists() and self.path.samefile(name):
                raise OutputError(f"{self.path} is both input and output. Choose another output.")
        if self.path.exists() and not (resume or overwrite):
            raise self.already_exists_error()
        if self.store.has_run and not (resume or overwrite):
            check_not_in_use(Path(self.store.place))
            raise OutputError(
                f"{self.store.place} contains the finished chunks of an interrupted run. Continue "
                "it with --resume, or discard it with --overwrite."
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path.parent):
                pass
        except OSError as error:
            raise output_error(self.path, error) from error

    def already_exists_error(self) -> OutputError:
        """Return the error for an existing file."""
        return OutputError(
            f"{self.path} already exists. Choose another name, or replace it with --overwrite."
        )

    def manifest(self, layout: Layout, documents: Sequence[str]) -> dict[str, Any]:
        """Return an empty manifest: to resume, only the settings have to match."""
        return {}

    @contextmanager
    def assembling(
        self, layout: Layout, about: About, times: Times, records: Mapping[int, Record]
    ) -> Iterator[OnFinished]:
        """Write the file from its chunks; the caller calls the function for each finished one."""
        finished: SimpleQueue[int | None] = SimpleQueue()
        temporary = Path(self.store.place) / ".output.tmp"  # removed by the next run after a kill
        times["assemble"] = 0.0

        def write() -> None:
            chunks = _in_order(self.store, finished, times)
            with timed(times, "assemble"), replace_file(self.path, temporary=temporary):
                self._format.write(temporary, chunks, layout, about)

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)

            def add(number: int) -> None:
                if writing.done():  # it has failed
                    writing.result()
                finished.put(number)

            try:
                for number in records:
                    add(number)
                yield add
            except BaseException:
                finished.put(-1)
                raise
            finished.put(None)
            writing.result()
        sync_directory(self.path.parent)  # the output must be on disk before chunks are removed
        self.store.clear()

    def finished(
        self, manifest: Mapping[str, Any], digest: Callable[[], str]
    ) -> dict[str, Any] | None:
        """Return the counts of the file if this run would write it again, otherwise None."""
        try:
            with open_vectors(self.path) as stored:
                about = stored.about
        except ElmoError:
            return None
        if about.get("run") != manifest or about.get("digest") != digest():
            return None
        counts: dict[str, Any] = about["counts"]
        return counts


class _Stopped(Exception):
    """The run ended before the file was complete."""


def _in_order(
    store: ChunkStore, finished: SimpleQueue[int | None], times: Times
) -> Iterator[Block]:
    """Yield finished chunks in order, until None (end) or a negative number (error) is queued."""
    ready: set[int] = set()
    number = 0
    while True:
        while number in ready:
            yield store.block(number)
            number += 1
        started = time.perf_counter()
        item = finished.get()
        times["assemble"] -= time.perf_counter() - started  # do not count waiting
        if item is None:
            return
        if item < 0:
            raise _Stopped
        ready.add(item)
