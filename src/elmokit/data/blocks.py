"""Blocks of text as ids that are local to the block.

Each block numbers its words independently, so that blocks can be processed in parallel.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.data.layout import END_ID, N_SPECIALS, RESERVED, UNKNOWN_ID
from elmokit.data.reading import Reading


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


class CountJob(NamedTuple):
    """A block of text (see `read_blocks`), and how it becomes words."""

    text: bytes
    reading: Reading


class CountedBlock(NamedTuple):
    """What is in a block.

    Attributes:
        words: The words in order of the block's own numbers, from 3 on, one per line.
        ids: The numbers of all sentences, each followed by that of `</S>`.
        starts: Where documents start in it.
        n_bytes: The length of its text.
    """

    words: bytes
    ids: NDArray[np.uintc]
    starts: NDArray[np.int64]
    n_bytes: int


def count_block(job: CountJob) -> CountedBlock:
    """Cut a block into words."""
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
    return CountedBlock(
        words="\n".join(numbers.new_words()).encode(),
        ids=np.frombuffer(ids, np.uintc),
        starts=np.array(starts, np.int64),
        n_bytes=len(job.text),
    )
