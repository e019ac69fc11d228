"""The first pass over a corpus: tokenize and count words, block by block.

The ids of all text are written to one file with the provisional ids of `TypeCounter`, because the
final ids are known only when everything is counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.data.blocks import count_block
from elmokit.data.layout import END_ID, ID_TYPE
from elmokit.data.reading import Reading, read_blocks
from elmokit.data.wordtypes import TypeCounter
from elmokit.data.workers import parallel_map
from elmokit.errors import DataError
from elmokit.progress import Progress

File = str | os.PathLike[str]
OnProgress = Callable[[Progress], None]

IdArray = NDArray[np.uint32]

_CHUNK = 1 << 22  # ids that are in memory at a time
_ID_BYTES = np.dtype(ID_TYPE).itemsize


class CountedText:
    """Text files that are read once, from the beginning.

    Args:
        path: The file for the provisional ids.
        reading: How text is split into words.
        block_characters: The size of a block of text.
        skip_bad: Skip and count lines that are not UTF-8.
        total_bytes: The size of all text, if known.
        on_progress: Called after each block.
        vocabulary: Words with fixed ids, without the special symbols.

    Attributes:
        counter: The types so far, with their counts.
        n_bytes: Bytes of text so far.
        skipped: Number of skipped lines so far.
        first_skipped: The problem with the first of them.
    """

    def __init__(
        self,
        path: Path,
        reading: Reading,
        *,
        block_characters: int,
        skip_bad: bool,
        total_bytes: int | None,
        on_progress: OnProgress | None,
        vocabulary: Sequence[str] = (),
    ) -> None:
        self.counter = TypeCounter(vocabulary)
        self.n_bytes = 0
        self.skipped = 0
        self.first_skipped = ""
        self._path = path
        self._reading = reading
        self._block_characters = block_characters
        self._skip_bad = skip_bad
        self._total_bytes = total_bytes
        self._on_progress = on_progress
        self._starts: list[NDArray[np.int64]] = []  # of documents
        self._n_ids = 0

    @property
    def bounds(self) -> NDArray[np.int64]:
        """The start of each document, and the end of the last one."""
        return np.concatenate([*self._starts, [self._n_ids]])

    def read(self, files: Sequence[File], n_workers: int) -> None:
        """Count the words of some files.

        Raises:
            DataError: The files cannot be read, or contain no words.
        """
        before = self._n_ids
        blocks = read_blocks(
            files, self._block_characters, skip_bad=self._skip_bad, on_bad=self._count_bad
        )
        count = partial(count_block, reading=self._reading)
        with self._path.open("ab") as file:
            for block in parallel_map(count, blocks, n_workers):
                words = block.words.decode().split("\n") if block.words else []
                file.write(self.counter.add(words, block.ids).astype(ID_TYPE).data)
                self._starts.append(block.starts + self._n_ids)
                self._n_ids += len(block.ids)
                self.n_bytes += block.n_bytes
                if self._on_progress is not None:
                    tokens = self._n_ids - int(self.counter.counts[END_ID])
                    self._on_progress(Progress(tokens, self.n_bytes, self._total_bytes))
        if self._n_ids == before:
            names = ", ".join(os.fspath(file) for file in files[:3])
            more = ", ..." if len(files) > 3 else ""
            raise DataError(f"No words in {names}{more}. Expected files with text.")

    def chunks(self, held_out: NDArray[np.bool_]) -> Iterator[tuple[IdArray, NDArray[np.bool_]]]:
        """Yield all provisional ids in order, and whether the document of each is held out."""
        bounds = self.bounds
        for start in range(0, self._n_ids, _CHUNK):
            ids = np.fromfile(self._path, ID_TYPE, _CHUNK, offset=start * _ID_BYTES)
            first = np.searchsorted(bounds, start, side="right") - 1
            last = np.searchsorted(bounds, start + len(ids), side="left")
            inside: NDArray[np.int64] = np.clip(bounds[first : last + 1], start, start + len(ids))
            yield ids, np.repeat(held_out[first:last], np.diff(inside))

    def _count_bad(self, message: str) -> None:
        self.skipped += 1
        self.first_skipped = self.first_skipped or message
