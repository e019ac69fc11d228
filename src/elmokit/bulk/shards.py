"""Directories of Parquet shards (one shard per chunk), and their reader.

In addition to the files of every directory of chunks (store.py), a directory of shards contains
`shards.json`, a list of all shards with their records. It is written last: a directory with this
file is complete. The footer of a shard contains its record, and the numbers of the sentences
without tokens, which have no rows. If several machines write shards, they must share the directory.
"""

from __future__ import annotations

import bisect
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.bulk.formats import check_package
from elmokit.bulk.formats.block import Block
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.parquet import (
    READ_OPTIONS,
    SentenceReader,
    check_size,
    vector_names,
    write_shard,
)
from elmokit.bulk.formats.reading import GetMetadata, StoredSentence, StoredVectors
from elmokit.bulk.input import is_remote
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.store import MANIFEST, ChunkStore, OnFinished, Record, Records, Times
from elmokit.errors import ConfigError, DataError, OutputError
from elmokit.progress import plural

SHARDS = "shards.json"
_RECORD = "elmokit.shard"
_EMPTY = "elmokit.empty"


class ShardDirectory(ChunkStore):
    """A directory of Parquet shards.

    Args:
        url: The path or URL of the directory.
        flags: The arguments `resume` and `overwrite` of `Output`.
    """

    def __init__(self, url: str, **flags: bool) -> None:
        check_package("pyarrow.parquet", "A directory of shards")
        super().__init__(Path(url), url, ".parquet", **flags)

    def check(self, documents: Sequence[str], settings: EmbedSettings) -> None:
        """Raise an error if the directory cannot be written, before a model is loaded."""
        if settings.state == "carry":
            raise ConfigError(
                "state='carry' requires a single output file, such as vectors.h5, because shards "
                "are computed independently. Use state='reset' or 'warm' for a directory."
            )
        if not is_remote(self.url) and self.path.is_file():
            raise OutputError(f"{self.path} is a file; expected the name of a new directory.")
        names = self.names()
        if MANIFEST not in names and any(not name.startswith(".") for name in names):
            raise OutputError(
                f"The directory {self.path} contains files that are not shards. Choose a new or "
                "empty directory."
            )
        if MANIFEST in names and not (self.resume or self.overwrite):
            raise OutputError(
                f"{self.path} contains the shards of an earlier run. Continue that run with "
                "--resume, or replace the shards with --overwrite."
            )

    def prepare(self, layout: Layout, documents: tuple[str, ...]) -> dict[str, Any]:
        """Return the values that readers of the directory need; see `Output`."""
        super().prepare(layout, documents)
        return {"n_layers": layout.n_layers, "dim": layout.dim, "documents": list(documents)}

    def clear(self) -> None:
        """Remove all files: first the list of shards, so that it never lists removed shards."""
        self._remove(SHARDS)
        super().clear()

    def read_record(self, name: str) -> Record:
        """Return the record of a shard."""
        with self.open_shard(name) as file:
            record: Record = self.read_footer(name, file, _RECORD)
        return record

    def write(self, block: Block) -> int:
        """Write a shard; see `Output`."""
        empty = np.flatnonzero(block.read("lengths") == 0).tolist()
        footer = {_RECORD: block.record, _EMPTY: empty}
        with self.open_for_writing(self.chunk_name(block.record["chunk"])) as file:
            write_shard(file, block, self.layout, self.documents, footer)
            return int(file.tell())

    @contextmanager
    def assemble(
        self, metadata: GetMetadata, times: Times, records: Records
    ) -> Iterator[OnFinished]:
        """Write the list of shards at the end; see `Output`."""
        yield lambda _: None
        shards = [
            {"shard": self.chunk_name(number), **records[number]} for number in sorted(records)
        ]
        _check_shards(self, shards)  # another machine may have written to another directory
        self.write_json(SHARDS, {"shards": shards})

    def open_shard(self, name: str) -> Any:
        """Open a shard and return a `pyarrow.parquet.ParquetFile`."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return pq.ParquetFile(f"{self.root}/{name}", filesystem=self.remote, **READ_OPTIONS)
        except (pa.ArrowException, OSError) as error:
            raise self.shard_error(name, error) from error

    def read_footer(self, name: str, file: Any, key: str) -> Any:
        """Read a JSON value from the footer of a shard."""
        try:
            return json.loads(file.metadata.metadata[key.encode()])
        except (ValueError, KeyError, TypeError) as error:
            raise self.shard_error(name, error) from error

    def shard_error(self, name: str, error: object) -> DataError:
        """Return the error for a damaged shard."""
        return DataError(f"The shard {self.url}/{name} is damaged ({error}). Delete it and resume.")


class ShardedVectors(StoredVectors):
    """All sentences of a directory of shards, in the order of the documents and the text.

    Sentences without tokens are included. Only one row group and the sentence bounds of one shard
    are in memory, regardless of the size of the directory.

    Args:
        url: The path or URL of the directory.

    Raises:
        DataError: The directory does not exist, is damaged, or is not finished.
    """

    def __init__(self, url: str) -> None:
        try:
            self._folder = ShardDirectory(url)
            metadata, self._records = _read_finished(self._folder)
        except OutputError as error:
            raise DataError(f"Cannot open the directory {url}: {error.__cause__}.") from error
        try:
            fields = Layout.__dataclass_fields__.keys() & metadata.keys()
            layout = Layout.from_dict({name: metadata[name] for name in fields})
            self._ends = list(accumulate(int(record["sentences"]) for record in self._records))
            documents = _document_ranges(metadata["documents"], self._records)
        except (KeyError, TypeError, ValueError, IndexError, ConfigError) as error:
            raise DataError(
                f"Cannot read {url} as a directory of shards: {MANIFEST} or {SHARDS} is damaged "
                f"({error!r})."
            ) from error
        super().__init__(Path(url), layout, metadata, self._ends[-1] if self._ends else 0)
        self.documents = documents
        self._shard_number = -1  # of the open shard
        self._reader: SentenceReader | None = None

    def _read(self, index: int) -> StoredSentence:
        number = bisect.bisect_right(self._ends, index)
        name = self._records[number]["shard"]
        try:
            if self._reader is None or self._shard_number != number:
                self.close()
                self._reader = self._open(name, self._records[number])
                self._shard_number = number
            return self._reader.read(index - (self._ends[number - 1] if number else 0))
        except OSError as error:  # the base class of pyarrow's reading errors
            raise self._folder.shard_error(name, error) from error

    def _open(self, name: str, record: Record) -> SentenceReader:
        from pyarrow.fs import LocalFileSystem

        folder = self._folder
        file = folder.open_shard(name)
        if {"shard": name, **folder.read_footer(name, file, _RECORD)} != record:
            raise folder.shard_error(name, f"its record differs from {SHARDS}")
        system = folder.remote or LocalFileSystem()
        check_size(file, self.layout, system.get_file_info(f"{folder.root}/{name}").size)
        if not {"token", "token_index", *vector_names(self.layout)} <= set(file.schema_arrow.names):
            raise folder.shard_error(name, "columns are missing")
        bounds = _bounds(file, int(record["sentences"]), folder.read_footer(name, file, _EMPTY))
        if bounds is None or bounds[-1] != record["tokens"]:
            raise folder.shard_error(name, "its rows differ from its record")
        return SentenceReader(file, self.layout, bounds)

    def close(self) -> None:
        """Close the open shard."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None


def _bounds(file: Any, n_sentences: int, empty: list[int]) -> NDArray[np.int64] | None:
    """Return the first row of each sentence and the end, or None if the sentence counts differ."""
    index = file.read(columns=["token_index"]).column(0).to_numpy()
    starts = np.append(np.flatnonzero(index == 0), len(index))
    if n_sentences != len(starts) - 1 + len(empty):
        return None
    has_tokens = np.isin(np.arange(n_sentences), empty, invert=True)
    if has_tokens.sum() != len(starts) - 1:
        return None
    # The bounds of a sentence without tokens are both the start of the next sentence.
    before = np.concatenate([[0], np.cumsum(has_tokens)])
    bounds: NDArray[np.int64] = starts[before]
    return bounds


def _read_finished(folder: ShardDirectory) -> tuple[dict[str, Any], list[Record]]:
    """Return the manifest and the list of shards, or raise an error if the run is not finished."""
    names = folder.names()
    if MANIFEST not in names:
        content = ", ".join(sorted(names)[:6]) or "no files"
        raise DataError(
            f"{folder.url} is not a directory of shards: expected {MANIFEST}, which `elmo embed "
            f"FILES -o DIR` writes; it contains {content}."
        )
    manifest = folder.read_manifest()
    if SHARDS not in names:
        raise DataError(
            f"{folder.url} is not finished: it contains "
            f"{plural(len(folder.chunk_names()), 'shard')}, but not {SHARDS}, which is written "
            "last. If the run is still active, wait until it has finished; otherwise repeat the "
            "`elmo embed` command with --resume."
        )
    shards = folder.read_json(SHARDS).get("shards")
    if not isinstance(shards, list):
        raise DataError(f"{folder.url}/{SHARDS} is damaged: it has no list of shards.")
    _check_shards(folder, shards)
    return manifest, shards


def _check_shards(folder: ShardDirectory, shards: list[Record]) -> None:
    if missing := {record["shard"] for record in shards}.difference(folder.names()):
        raise DataError(
            f"{folder.url} is missing {len(missing):,} of {plural(len(shards), 'shard')}, for "
            f"example {min(missing)}. To create all shards, repeat the `elmo embed` command with "
            "--resume."
        )


def _document_ranges(names: list[str], records: list[Record]) -> list[tuple[str, range]]:
    """Return the name of each document and the range of its sentences."""
    totals = [0] * len(names)
    for record in records:
        for document, sentences in record["documents"]:
            totals[document] += int(sentences)
    bounds = pairwise(accumulate(totals, initial=0))
    return [(name, range(*span)) for name, span in zip(names, bounds, strict=True)]
