"""A directory of Parquet shards, one per chunk; `formats/sharded.py` reads it.

In addition to the files of every directory of chunks (store.py), it contains `shards.json`, a list
of all shards with their records. It is written last, so that readers know that the directory is
complete. The footer of a shard contains its record, and the sentences without tokens, which have no
rows. If several machines write shards, they need a shared directory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.bulk.chunks import is_remote
from elmokit.bulk.formats import check_package
from elmokit.bulk.formats.block import Block
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.parquet import write_shard
from elmokit.bulk.formats.reading import About
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.store import MANIFEST, ChunkStore, OnFinished, Records, Times
from elmokit.errors import ConfigError, DataError, OutputError

SHARDS = "shards.json"
RECORD = "elmokit.shard"
EMPTY = "elmokit.empty"


class ShardDirectory(ChunkStore):
    """A directory of Parquet shards.

    Args:
        place: Its path or URL.
        how: `resume` and `overwrite` of an `Output`.
    """

    def __init__(self, place: str, **how: bool) -> None:
        check_package("pyarrow.parquet", "A directory of shards")
        super().__init__(Path(place), place, ".parquet", **how)

    def check(self, documents: Sequence[str], settings: EmbedSettings) -> None:
        """Raise an error if the directory cannot be written, before a model is loaded."""
        if settings.state == "carry":
            raise ConfigError(
                "state='carry' requires a single output file, such as vectors.h5, because shards "
                "are computed independently. Use state='reset' or 'warm' for a directory."
            )
        if not is_remote(self.place) and self.path.is_file():
            raise OutputError(f"{self.path} is a file; expected the name of a new directory.")
        names = self.names()
        if MANIFEST not in names and any(not name.startswith(".") for name in names):
            raise OutputError(f"The directory {self.path} contains other files. Choose a new name.")
        if MANIFEST in names and not (self.resume or self.overwrite):
            raise OutputError(
                f"{self.path} contains the shards of an earlier run. Continue it with --resume, or "
                "replace it with --overwrite."
            )

    def prepare(self, layout: Layout, documents: tuple[str, ...]) -> dict[str, Any]:
        """Return the values that readers of the directory need; see `Output`."""
        super().prepare(layout, documents)
        return {"n_layers": layout.n_layers, "dim": layout.dim, "documents": list(documents)}

    def clear(self) -> None:
        """Remove everything; the list of shards first, so that it never lists removed ones."""
        self._remove(SHARDS)
        super().clear()

    def records(self) -> Records:
        """Return the records of the finished shards; see `Output`."""
        records = {}
        for name in self.chunks():
            with self.open_shard(name) as file:
                record = self.read_note(name, file, RECORD)
            records[int(record["chunk"])] = record
        return records

    def write(self, block: Block) -> int:
        """Write a shard; see `Output`."""
        empty = np.flatnonzero(block.read("lengths") == 0).tolist()
        notes = {RECORD: block.record, EMPTY: empty}
        with self.writing(self.chunk_name(block.record["chunk"])) as file:
            write_shard(file, block, self.layout, self.documents, notes)
            return int(file.tell())

    @contextmanager
    def assembling(self, about: About, times: Times, records: Records) -> Iterator[OnFinished]:
        """Write the list of shards at the end; see `Output`."""
        yield lambda _: None
        shards = [
            {"shard": self.chunk_name(number), **records[number]} for number in sorted(records)
        ]
        self.write_json(SHARDS, {"shards": shards})

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

    def read_note(self, name: str, file: Any, key: str) -> Any:
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
