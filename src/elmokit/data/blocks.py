"""Blocks of text as ids: first by numbers of the block's own, later by those of the corpus.

Each block numbers its words by itself, so that blocks need nothing from each other and a process
that works on one holds no more than its words. The main process gives every type of the corpus a
provisional number (`elmokit.data.wordtypes`) and keeps for each block a table from the block's
numbers to those. When all text is counted and the types are ranked, the blocks are rewritten
through both.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.data.arrays import save_values, write_at
from elmokit.data.layout import (
    END_ID,
    ID_TYPE,
    N_SPECIALS,
    RESERVED,
    TRAIN,
    UNKNOWN_ID,
    VALID,
    tokens_file,
)
from elmokit.data.reading import Reading

RANKS = "ranks.npy"  # the final id of each provisional number

_ID_BYTES = np.dtype(ID_TYPE).itemsize


class Numbers(dict[str, int]):
    """Words to numbers, given out in order as words are met; the specials have theirs already."""

    def __init__(self, taken: dict[str, int]) -> None:
        super().__init__(taken)
        self._taken = len(taken)

    def __missing__(self, word: str) -> int:
        number = self[word] = N_SPECIALS + len(self) - self._taken
        return number

    def new_words(self) -> list[str]:
        """Return the words in order of their numbers, which start after the specials."""
        return list(self)[self._taken :]


@dataclass(frozen=True)
class CountJob:
    """A block of text (see `read_blocks`) to be counted.

    Attributes:
        number: The place of the block, counted from 0.
        text: The text.
        reading: How it becomes words.
        folder: Where the ids go.
    """

    number: int
    text: bytes
    reading: Reading
    folder: Path


class CountedBlock(NamedTuple):
    """What is in a block.

    Attributes:
        words: The words in order of the block's own numbers, from 3 on, one per line.
        counts: How often each number is in the block, those of the specials first.
        starts: Where documents start in it.
        n_ids: Its length.
        n_bytes: The length of its text.
    """

    words: bytes
    counts: NDArray[np.int64]
    starts: NDArray[np.int64]
    n_ids: int
    n_bytes: int


def count_block(job: CountJob) -> CountedBlock:
    """Cut a block into words and store their numbers."""
    numbers = Numbers(dict.fromkeys(RESERVED, UNKNOWN_ID))
    ids = array("I")
    starts = []
    for line in job.text.decode().split("\n"):
        if not line:
            starts.append(len(ids))
            continue
        for sentence in job.reading.sentences(line):
            # dict.__getitem__ calls __missing__ for new words, so this loop runs in C.
            ids.extend(map(numbers.__getitem__, sentence))
            ids.append(END_ID)
    words = numbers.new_words()
    stored = np.frombuffer(ids, np.uintc).astype(ID_TYPE, copy=False)
    save_values(ids_file(job.folder, job.number), stored)
    return CountedBlock(
        words="\n".join(words).encode(),
        counts=np.bincount(stored, minlength=N_SPECIALS + len(words)),
        starts=np.array(starts, np.int64),
        n_ids=len(ids),
        n_bytes=len(job.text),
    )


@dataclass(frozen=True)
class StoredBlock:
    """A counted block, and its place in the corpus.

    Attributes:
        number: The place of the block, counted from 0.
        starts: Where documents start in it.
        n_ids: Its length.
        first_document: The number of documents that started before it.
    """

    number: int
    starts: NDArray[np.int64]
    n_ids: int
    first_document: int

    def pieces(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the documents that have a part in this block, and the lengths of the parts."""
        goes_on = int(not len(self.starts) or self.starts[0] > 0)  # from the block before
        bounds = [np.zeros(goes_on, np.int64), self.starts, np.array([self.n_ids])]
        lengths = np.diff(np.concatenate(bounds))
        return self.first_document - goes_on + np.arange(len(lengths)), lengths


@dataclass(frozen=True)
class RewriteJob:
    """A block whose ids go to their final places.

    Attributes:
        block: The block.
        held_out: Which of its pieces are held out.
        offsets: Where in each split the block begins.
        work: The folder with the numbers of blocks.
        output: The folder with the files of the splits.
    """

    block: StoredBlock
    held_out: NDArray[np.bool_]
    offsets: dict[str, int]
    work: Path
    output: Path


def rewrite_block(job: RewriteJob) -> int:
    """Give the words of a block their final ids, and return how many there are."""
    number = job.block.number
    ranks = np.load(job.work / RANKS, mmap_mode="r", allow_pickle=False)
    final = ranks[np.fromfile(table_file(job.work, number), ID_TYPE)]
    ids = final[np.fromfile(ids_file(job.work, number), ID_TYPE)]
    is_held = np.repeat(job.held_out, job.block.pieces()[1])
    for split, wanted in ((TRAIN, ~is_held), (VALID, is_held)):
        if wanted.any():
            chosen = ids if wanted.all() else ids[wanted]
            write_at(job.output / tokens_file(split), job.offsets[split] * _ID_BYTES, chosen)
    ids_file(job.work, number).unlink()  # room on the disk for the blocks to come
    return len(ids)


def ids_file(folder: Path, number: int) -> Path:
    """Return the file with the ids of a block, by the block's own numbers."""
    return folder / f"{number}.ids"


def table_file(folder: Path, number: int) -> Path:
    """Return the file with the provisional number for each of a block's own."""
    return folder / f"{number}.table"
