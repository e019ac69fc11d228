"""Read a directory of shards (bulk/shards.py) as one sequence of all sentences.

Documents are in the order in which they were given, shards and sentences in the order of the text.
Sentences without tokens, which have no rows, are included. One row group and the bounds of the
sentences of one shard are in memory, whatever the size of the directory.
"""

from __future__ import annotations

import bisect
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.parquet import RowReader, vector_names
from elmokit.bulk.formats.reading import StoredSentence, StoredVectors
from elmokit.bulk.shards import EMPTY, RECORD, SHARDS, ShardDirectory
from elmokit.bulk.store import MANIFEST, VERSION
from elmokit.errors import ConfigError, DataError, OutputError


class ShardedVectors(StoredVectors):
    """The reader.

    Args:
        place: The path or URL of the directory.

    Raises:
        DataError: The directory does not exist, is damaged, or is not finished.
    """

    def __init__(self, place: str) -> None:
        self._folder = ShardDirectory(place)
        try:
            about = _check_finished(self._folder)
        except OutputError as error:
            raise DataError(f"The directory {place} does not exist: {error.__cause__}.") from error
        self._records = _records(self._folder)
        try:
            layout = Layout.from_dict(about)
            self._ends = list(accumulate(int(record["sentences"]) for record in self._records))
            documents = _ranges(about["documents"], self._records)
        except (KeyError, TypeError, ValueError, IndexError, ConfigError) as error:
            raise DataError(
                f"Cannot read {place} as a directory of shards: {MANIFEST} or {SHARDS} is damaged "
                f"({error!r})."
            ) from error
        super().__init__(Path(place), layout, about, self._ends[-1] if self._ends else 0)
        self.documents = documents
        self._shard: _Shard | None = None

    def _read(self, index: int) -> StoredSentence:
        number = bisect.bisect_right(self._ends, index)
        if self._shard is None or self._shard.number != number:
            self.close()
            self._shard = _open_shard(self._folder, number, self._records[number], self.layout)
        sentence = index - (self._ends[number - 1] if number else 0)
        begin, end = self._shard.bounds[sentence : sentence + 2].tolist()
        try:
            return self._sentence(*self._shard.rows.read(begin, end))
        except OSError as error:  # the base class of pyarrow's reading errors
            raise self._folder.damaged(self._records[number]["shard"], error) from error

    def close(self) -> None:
        """Close the open shard."""
        if self._shard is not None:
            self._shard.rows.close()
            self._shard = None


class _Shard(NamedTuple):
    """An open shard.

    Attributes:
        number: Its number in the directory.
        rows: Its rows.
        bounds: The first row of each sentence, and the end of the last one.
    """

    number: int
    rows: RowReader
    bounds: NDArray[np.int64]


def _open_shard(
    folder: ShardDirectory, number: int, record: dict[str, Any], layout: Layout
) -> _Shard:
    name = record["shard"]
    file = folder.open_shard(name)
    try:
        stored = folder.read_note(name, file, RECORD)
        if {"shard": name, **stored} != record:
            raise folder.damaged(name, f"it differs from the one in {SHARDS}")
        if not {"token", "token_index", *vector_names(layout)} <= set(file.schema_arrow.names):
            raise folder.damaged(name, "columns are missing")
        bounds = _bounds(file, int(record["sentences"]), folder.read_note(name, file, EMPTY))
        if bounds is None or bounds[-1] != record["tokens"]:
            raise folder.damaged(name, "its sentences differ from its record")
        return _Shard(number, RowReader(file, layout), bounds)
    except OSError as error:
        file.close()
        raise folder.damaged(name, error) from error
    except BaseException:
        file.close()
        raise


def _bounds(file: Any, n_sentences: int, empty: list[int]) -> NDArray[np.int64] | None:
    """Return the bounds of the sentences, from the rows of first tokens; None if inconsistent."""
    index = file.read(columns=["token_index"]).column(0).to_numpy()
    starts = np.append(np.flatnonzero(index == 0), len(index))
    has_tokens = np.isin(np.arange(n_sentences), empty, invert=True)
    if has_tokens.sum() != len(starts) - 1:
        return None
    # A sentence without tokens begins and ends where the next one begins.
    before = np.concatenate([[0], np.cumsum(has_tokens)])
    bounds: NDArray[np.int64] = starts[before]
    return bounds


def _check_finished(folder: ShardDirectory) -> dict[str, Any]:
    """Return the manifest; raise an error if the directory has none or is not finished."""
    names = folder.names()
    if MANIFEST not in names:
        content = ", ".join(sorted(names)[:6]) or "no files"
        raise DataError(
            f"{folder.place} is not a directory of shards: expected {MANIFEST}, which `elmo embed "
            f"FILES -o DIR` writes; it contains {content}."
        )
    about = folder.read_json(MANIFEST)
    version = about.pop("version", None)
    if version != VERSION:
        raise DataError(
            f"{folder.place} has format version {version}; this elmokit reads {VERSION}. "
            "Create it again with --overwrite, or use the version of elmokit that wrote it."
        )
    if SHARDS not in names:
        raise DataError(
            f"{folder.place} is not finished: it contains {len(folder.chunks()):,} shards, but not "
            f"{SHARDS}, which is written last. If the run is still active, wait until it has "
            "finished; otherwise repeat the `elmo embed` command with --resume."
        )
    return about


def _records(folder: ShardDirectory) -> list[dict[str, Any]]:
    listed = folder.read_json(SHARDS).get("shards")
    if not isinstance(listed, list):
        raise DataError(f"{folder.place}/{SHARDS} is damaged: it has no list of shards.")
    names = set(folder.names())
    missing = [record["shard"] for record in listed if record["shard"] not in names]
    if missing:
        raise DataError(
            f"{len(missing):,} of {len(listed):,} shards of {folder.place} are missing, for "
            f"example {missing[0]}. To create them, repeat the `elmo embed` command with --resume."
        )
    return listed


def _ranges(names: list[str], records: list[dict[str, Any]]) -> list[tuple[str, range]]:
    totals = [0] * len(names)
    for record in records:
        for document, sentences in record["documents"]:
            totals[document] += int(sentences)
    ends = list(accumulate(totals))
    return [
        (name, range(end - total, end))
        for name, total, end in zip(names, totals, ends, strict=True)
    ]
