"""A folder of shards (bulk/store.py) read as one sequence: all sentences, in their order.

Documents stand in the order in which they were named, their shards and sentences in that of the
text, and a sentence without tokens, which has no row, is where it was. What is held in memory is
one row group (a part) and where the sentences of one shard begin, whatever the size of the folder.
"""

from __future__ import annotations

import bisect
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.parquet import check_available, vector_names, vectors_of
from elmokit.bulk.formats.reading import StoredSentence, StoredVectors
from elmokit.bulk.store import EMPTY, MANIFEST, RECORD, SHARDS, VERSION, ChunkStore
from elmokit.errors import ConfigError, DataError, OutputError


class ShardedVectors(StoredVectors):
    """The reader.

    Args:
        place: The folder, by its path or address.
        filesystem: Where it is, with `place` as the path there; found by the address otherwise.

    Raises:
        DataError: There is no such folder, it is damaged, or it is not finished.
    """

    def __init__(self, place: str, filesystem: Any = None) -> None:
        check_available()
        self._folder = ChunkStore(place, ".parquet", filesystem)
        try:
            about = _check_finished(self._folder)
        except OutputError as error:
            raise DataError(f"There is no folder of shards {place}: {error.__cause__}.") from error
        self._records = _records(self._folder)
        try:
            layout = Layout.from_dict(about)
            self._ends = list(accumulate(int(record["sentences"]) for record in self._records))
            documents = _ranges(about["documents"], self._records)
        except (KeyError, TypeError, ValueError, IndexError, ConfigError) as error:
            raise DataError(
                f"{place} cannot be read as a folder of shards: {MANIFEST} or {SHARDS} is damaged "
                f"({error!r})."
            ) from error
        super().__init__(Path(place), layout, about, self._ends[-1] if self._ends else 0)
        self.documents = documents
        self._shard: _Shard | None = None
        self._held: tuple[int, Any] | None = None

    def _read(self, index: int) -> StoredSentence:
        number = bisect.bisect_right(self._ends, index)
        shard = self._open(number)
        begin, end = shard.rows(index - (self._ends[number - 1] if number else 0))
        if begin == end:
            return self._sentence([], vectors_of(None, 0, 0, self.layout))
        group = bisect.bisect_right(shard.group_ends, begin)
        first = shard.group_ends[group - 1] if group else 0
        table = self._group(shard, group)
        begin, end = begin - first, end - first
        tokens = table.column("token").slice(begin, end - begin).to_pylist()
        return self._sentence(tokens, vectors_of(table, begin, end, self.layout))

    def _open(self, number: int) -> _Shard:
        if self._shard is None or self._shard.number != number:
            self.close()
            self._shard = _open_shard(self._folder, number, self._records[number], self.layout)
        return self._shard

    def _group(self, shard: _Shard, group: int) -> Any:
        if self._held is None or self._held[0] != group:
            self._held = None  # so that two groups are never in memory
            columns = ["token", *vector_names(self.layout)]
            try:
                table = shard.file.read_row_group(group, columns=columns).combine_chunks()
            except OSError as error:  # pyarrow's errors of reading are such
                raise self._folder.damaged(shard.name, error) from error
            self._held = (group, table)
        return self._held[1]

    def close(self) -> None:
        """Close the shard that is open."""
        self._held = None
        if self._shard is not None:
            self._shard.file.close()
            self._shard = None


class _Shard(NamedTuple):
    """A shard that is open.

    Attributes:
        number: Its number in the folder.
        name: Its name.
        file: The `pyarrow.parquet.ParquetFile`.
        bounds: Where the rows of each of its sentences begin, and of the last one end.
        group_ends: The row at which each row group ends.
    """

    number: int
    name: str
    file: Any
    bounds: NDArray[np.int64]
    group_ends: list[int]

    def rows(self, sentence: int) -> tuple[int, int]:
        """Return the first row of a sentence and the one after its last."""
        return int(self.bounds[sentence]), int(self.bounds[sentence + 1])


def _open_shard(folder: ChunkStore, number: int, record: dict[str, Any], layout: Layout) -> _Shard:
    name = record["shard"]
    file = folder.open_shard(name)
    try:
        noted = folder.note(name, file, RECORD)
        if {"shard": name, **noted} != record:
            raise folder.damaged(name, f"it is not the one that {SHARDS} lists")
        if not {"token", "token_index", *vector_names(layout)} <= set(file.schema_arrow.names):
            raise folder.damaged(name, "columns are missing in it")
        bounds = _bounds(file, int(record["sentences"]), folder.note(name, file, EMPTY))
        if bounds is None or bounds[-1] != record["tokens"]:
            raise folder.damaged(name, "its sentences are not those of its record")
        groups = (file.metadata.row_group(g).num_rows for g in range(file.num_row_groups))
        return _Shard(number, name, file, bounds, list(accumulate(groups)))
    except OSError as error:
        file.close()
        raise folder.damaged(name, error) from error
    except BaseException:
        file.close()
        raise


def _bounds(file: Any, n_sentences: int, empty: list[int]) -> NDArray[np.int64] | None:
    """Find where sentences begin: at the rows of their first tokens; None if that cannot be."""
    index = file.read(columns=["token_index"]).column(0).to_numpy()
    starts = np.append(np.flatnonzero(index == 0), len(index))
    has_tokens = np.isin(np.arange(n_sentences), empty, invert=True)
    if has_tokens.sum() != len(starts) - 1:
        return None
    # A sentence without tokens begins, and ends, where the next one begins.
    before = np.concatenate([[0], np.cumsum(has_tokens)])
    bounds: NDArray[np.int64] = starts[before]
    return bounds


def _check_finished(folder: ChunkStore) -> dict[str, Any]:
    """Return what the manifest tells; raise if the folder is none of ours, or not finished."""
    names = folder.names()
    if MANIFEST not in names:
        found = ", ".join(sorted(names)[:6]) or "nothing"
        raise DataError(
            f"{folder.place} is no folder of shards: `elmo embed FILES -o FOLDER` writes a "
            f"{MANIFEST} into it, found {found}."
        )
    about = folder.read_json(MANIFEST)
    version = about.pop("version", None)
    if version not in (2, VERSION):
        raise DataError(
            f"{folder.place} is a folder of version {version}; this elmokit reads 2 and {VERSION}. "
            "Make it again with --overwrite, or read it with the elmokit that made it."
        )
    if SHARDS not in names:
        raise DataError(
            f"{folder.place} is not finished: {len(folder.chunks()):,} shards are there, and "
            f"{SHARDS}, which is written last, is not. If the run still goes on, wait for its end; "
            "else give the same `elmo embed` command with --resume, and nothing that is there is "
            "computed again."
        )
    return about


def _records(folder: ChunkStore) -> list[dict[str, Any]]:
    listed = folder.read_json(SHARDS).get("shards")
    if not isinstance(listed, list):
        raise DataError(f"{folder.place}/{SHARDS} is damaged: it lists no shards.")
    there = set(folder.names())
    missing = [record["shard"] for record in listed if record["shard"] not in there]
    if missing:
        raise DataError(
            f"{folder.place} lacks {len(missing):,} of its {len(listed):,} shards, the first being "
            f"{missing[0]}. Give the same `elmo embed` command with --resume to make them again."
        )
    return listed


def _ranges(names: list[str], records: list[dict[str, Any]]) -> list[tuple[str, range]]:
    # A folder of version 2 has shards of one document each.
    counts = [
        (document, sentences)
        for record in records
        for document, sentences in record.get("documents")
        or [(record.get("document", 0), record["sentences"])]
    ]
    totals = [0] * len(names)
    for document, sentences in counts:
        totals[document] += int(sentences)
    ends = list(accumulate(totals))
    return [
        (name, range(end - total, end))
        for name, total, end in zip(names, totals, ends, strict=True)
    ]
