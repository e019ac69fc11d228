"""The first pass over a corpus: text is cut into words and counted, block by block."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.data.arrays import save_values
from elmokit.data.blocks import CountJob, StoredBlock, count_block, ids_file, table_file
from elmokit.data.layout import END_ID, ID_TYPE
from elmokit.data.reading import Reading, read_blocks
from elmokit.data.wordtypes import TypeCounter
from elmokit.data.workers import Workers
from elmokit.errors import DataError

File = str | os.PathLike[str]


class Progress(NamedTuple):
    """How far the work has gone; `total_bytes` is None if the input is packed or a stream."""

    tokens: int
    n_bytes: int
    total_bytes: int | None


OnProgress = Callable[[Progress], None]


class CountedText:
    """Text files that are read once, from the beginning.

    Args:
        folder: Where the numbers of the words go.
        reading: How text becomes words.
        block_characters: How much text is worked on at a time.
        skip_bad: Leave out and count lines that are not UTF-8.
        total_bytes: The size of all text, if known.
        on_progress: Called after each block.
        vocabulary: Words whose place is given, without the specials.

    Attributes:
        blocks: The blocks so far.
        counter: The types in them, with their counts.
        n_documents: Documents so far.
        n_bytes: Bytes of text so far.
        skipped: Bad lines left out so far.
        first_skipped: What was wrong with the first of them.
    """

    def __init__(
        self,
        folder: Path,
        reading: Reading,
        *,
        block_characters: int,
        skip_bad: bool,
        total_bytes: int | None,
        on_progress: OnProgress | None,
        vocabulary: Sequence[str] = (),
    ) -> None:
        self.folder = folder
        self.blocks: list[StoredBlock] = []
        self.counter = TypeCounter(vocabulary)
        self.n_documents = 0
        self.n_bytes = 0
        self.skipped = 0
        self.first_skipped = ""
        self._reading = reading
        self._block_characters = block_characters
        self._skip_bad = skip_bad
        self._total_bytes = total_bytes
        self._on_progress = on_progress
        self._n_tokens = 0

    def read(self, files: Sequence[File], workers: Workers) -> None:
        """Count the words of some files.

        Raises:
            DataError: The files cannot be read, or hold no words.
        """
        before = len(self.blocks)
        for counted in workers.map(count_block, self._jobs(files)):
            block = StoredBlock(len(self.blocks), counted.starts, counted.n_ids, self.n_documents)
            words = counted.words.decode().split("\n") if counted.words else []
            table = self.counter.add(words, counted.counts)
            save_values(table_file(self.folder, block.number), table.astype(ID_TYPE))
            self.blocks.append(block)
            self.n_documents += len(counted.starts)
            self.n_bytes += counted.n_bytes
            self._n_tokens += counted.n_ids - int(counted.counts[END_ID])
            if self._on_progress is not None:
                self._on_progress(Progress(self._n_tokens, self.n_bytes, self._total_bytes))
        if len(self.blocks) == before:
            names = ", ".join(os.fspath(file) for file in files[:3])
            more = ", ..." if len(files) > 3 else ""
            raise DataError(f"There are no words in {names}{more}. Give files with text.")

    def counts_of(self, documents: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Count each provisional number in the chosen documents only."""
        counts = np.zeros(len(self.counter), np.int64)
        for block in self.blocks:
            members, lengths = block.pieces()
            chosen = documents[members]
            if not chosen.any():
                continue
            ids = np.fromfile(ids_file(self.folder, block.number), ID_TYPE)
            table = np.fromfile(table_file(self.folder, block.number), ID_TYPE)
            counts[table] += np.bincount(ids[np.repeat(chosen, lengths)], minlength=len(table))
        return counts

    def _jobs(self, files: Sequence[File]) -> Iterator[CountJob]:
        blocks = read_blocks(
            files, self._block_characters, skip_bad=self._skip_bad, on_bad=self._count_bad
        )
        for number, text in enumerate(blocks, start=len(self.blocks)):
            yield CountJob(number, text, self._reading, self.folder)

    def _count_bad(self, message: str) -> None:
        self.skipped += 1
        self.first_skipped = self.first_skipped or message
