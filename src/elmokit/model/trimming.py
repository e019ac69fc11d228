"""Trim the character ids of words, and group words into blocks of few shapes.

The maximum over windows needs only one window that consists of padding, so a short word can be
truncated after `max_width` padding characters without changing its vector.

x_k of a token must not depend on the words that are encoded with it; otherwise, the same sentence
could get different vectors in different batches. The order of summation in a matrix product depends
on its size. Therefore a block has one fixed shape per word length, which is always the same for a
token, and is padded by repeating its members. If the sizes of a model are multiples of 16, as in
all released models, rows of such a block are bit-identical at any position (a test checks this);
for other sizes, they may differ in the last bit or two.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from elmokit.model.chars import spelled_length

_COLUMN_STEP = 8

Ids = NDArray[np.int64]


def trimmed_blocks(
    ids: Ids, max_width: int, rows: int, pad: int | None = None
) -> Iterator[tuple[Ids, Ids]]:
    """Group tokens into blocks of `rows` words with similar numbers of characters.

    Args:
        ids: Character ids, shape (n, C).
        max_width: Width of the widest filter.
        rows: Words per block.
        pad: The padding id inside a word, if it is not that of `chars.py`.

    Yields:
        The indices of the tokens in a block, shape (m,), m <= rows; their ids, shape
        (rows, C' <= C), in which the last rows repeat others.
    """
    needed = (spelled_length(ids) if pad is None else spelled_length(ids, pad)) + max_width
    columns = np.minimum(-(-needed // _COLUMN_STEP) * _COLUMN_STEP, ids.shape[1])
    for width in np.unique(columns):
        members = np.flatnonzero(columns == width)
        for block, filled in padded_blocks(members, rows):
            yield block, ids[filled, :width]


def padded_blocks(members: Ids, rows: int) -> Iterator[tuple[Ids, Ids]]:
    """Split a list into blocks, and return each with a copy that is padded to `rows` members."""
    for start in range(0, len(members), rows):
        block = members[start : start + rows]
        yield block, np.resize(block, rows)
