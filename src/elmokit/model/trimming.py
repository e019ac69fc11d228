"""Trim the character ids of words, and group words into blocks with few distinct shapes.

The maximum over windows needs only one window that consists entirely of padding, so the ids of a
short word can be truncated after `max_width` padding characters without changing the word's vector.

x_k of a token must not depend on the words that are encoded with it. Otherwise, a sentence could
get different vectors in different batches, because the order of summation in a matrix product
depends on the sizes of the matrices. All blocks of words of similar length therefore have the same
shape, and incomplete blocks are padded by repeating words. If the sizes of a model are multiples of
16, as in all released models, the result for a word is bit-identical at any position in a block (a
test checks this). For other sizes, results may differ in the last two bits.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from elmokit.model.chars import unpadded_length

_COLUMN_STEP = 8

Ids = NDArray[np.int64]


def trimmed_blocks(
    ids: Ids, max_width: int, rows: int, pad: int | None = None
) -> Iterator[tuple[Ids, Ids]]:
    """Group tokens into blocks of `rows` words with similar numbers of characters.

    Args:
        ids: Character ids, shape (n, C).
        max_width: Width of the widest filter.
        rows: Number of words per block.
        pad: The padding id inside words. Default: the id in `chars.py`.

    Yields:
        The indices of the tokens of a block, shape (m,) with m <= rows, and their ids, shape
        (rows, C') with C' <= C, padded with repeated rows.
    """
    needed = (unpadded_length(ids) if pad is None else unpadded_length(ids, pad)) + max_width
    columns = np.minimum(-(-needed // _COLUMN_STEP) * _COLUMN_STEP, ids.shape[1])
    for width in np.unique(columns):
        members = np.flatnonzero(columns == width)
        for block, padded in padded_blocks(members, rows):
            yield block, ids[padded, :width]


def padded_blocks(members: Ids, rows: int) -> Iterator[tuple[Ids, Ids]]:
    """Split an array into blocks. Yield each block, and a copy padded to `rows` by repetition."""
    for start in range(0, len(members), rows):
        block = members[start : start + rows]
        yield block, np.resize(block, rows)
