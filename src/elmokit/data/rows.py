"""Sentences as language-model examples, packed into rows of a fixed number of steps.

A forward LM reads `<S> w1 .. wn` and should say `w1 .. wn </S>`; a backward LM reads
`</S> wn .. w1` and should say `wn .. w1 <S>`. The symbol that opens a direction is never a target
and the one that closes it never an input. Each row of a batch is one endless stream of such pairs,
cut every `steps` positions without padding; the LSTM's state goes on from one batch to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]


class Pairs(NamedTuple):
    """Aligned inputs and targets, of shape (n,) for a sentence and (rows, steps) for a batch."""

    inputs: Ids
    targets: Ids


def sentence_pairs(words: Sequence[int], begin: int, end: int, *, backward: bool = False) -> Pairs:
    """Make the examples of one sentence in one direction.

    Args:
        words: Word ids of the sentence, without boundaries.
        begin: Id of `<S>`.
        end: Id of `</S>`.
        backward: Read from the end.
    """
    whole = np.array([begin, *words, end], dtype=np.int64)
    if backward:
        whole = whole[::-1]
    return Pairs(whole[:-1], whole[1:])


def pack_rows(sentences: Iterator[Pairs], rows: int, steps: int) -> Iterator[Pairs]:
    """Pack sentences into batches as bilm-tf does: a row that runs out takes the next sentence.

    Ends when the sentences do; what does not fill a batch any more is dropped.
    """
    left = [Pairs(np.empty(0, np.int64), np.empty(0, np.int64))] * rows
    while True:
        batch = Pairs(np.empty((rows, steps), np.int64), np.empty((rows, steps), np.int64))
        for row in range(rows):
            filled = 0
            while filled < steps:
                if not len(left[row].inputs):
                    taken = next(sentences, None)
                    if taken is None:
                        return
                    left[row] = taken
                n = min(steps - filled, len(left[row].inputs))
                for whole, piece in zip(batch, left[row], strict=True):
                    whole[row, filled : filled + n] = piece[:n]
                left[row] = Pairs(left[row].inputs[n:], left[row].targets[n:])
                filled += n
        yield batch
