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
    """Ids of words, assigned in order of first occurrence after the ids of the special symbols.

    Args:
        reserved: Words that already have an id.
    """

    def __init__(self, reserved: dict[str, int]) -> None:
        super().__init__(reserved)
        self._n_reserved = len(reserved)

    def __missing__(self, word: str) -> int:
        number = self[word] = N_SPECIALS + len(self) - self._n_reserved
        return number

    def new_words(self) -> list[str]:
        """Return the words that are not reserved, in order of their ids."""
        return list(self)[self._n_reserved :]


class CountedBlock(NamedTuple):
    """The contents of a block.

    Attributes:
        words: The words in order of the block's own ids, which start at 3, one per line.
        ids: The ids of all sentences, each followed by that of `</S>`.
        starts: Where documents start in it.
        n_bytes: The length of its text.
    """

    words: bytes
    ids: NDArray[np.uintc]
    starts: NDArray[np.int64]
    n_bytes: int


def count_block(text: bytes, reading: Reading) -> CountedBlock:
    """Tokenize a block of text (see `read_blocks`)."""
    numbers = Numbers(dict.fromkeys(RESERVED, UNKNOWN_ID))
    ids = array("I")
    starts = []
    for line in text.decode().split("\n"):
        if not line:
            starts.append(len(ids))
            continue
        for sentence in reading.sentences(line):
            # dict.__getitem__ calls __missing__ for new words, so this loop runs in C.
            ids.extend(map(numbers.__getitem__, sentence))
            ids.append(END_ID)
    return CountedBlock(
        words="\n".join(numbers.new_words()).encode(),
        ids=np.frombuffer(ids, np.uintc),
        starts=np.array(starts, np.int64),
        n_bytes=len(text),
    )
