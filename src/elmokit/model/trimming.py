"""Character ids in blocks of few shapes: words cut to what the token encoder has to see of them.

The maximum over windows only has to see one window of padding alone, so a short word can be cut
after `max_width` padding characters without changing its vector.

A token's x_k must not depend on what is encoded beside it, or the same sentence would give other
bits on another day. Matrix products of other sizes sum in another order, so a block has one fixed
shape per word length, which never changes for a token, and is filled up by repeating its members.
In models whose sizes are multiples of 16, as all released ones are, the rows of such a block come
out the same to the bit wherever they stand (a test checks it); in odd sizes to the last bit or two.
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
    """Cut tokens into blocks of `rows` words that need about the same number of characters.

    Args:
        ids: Character ids, shape (n, C).
        max_width: Of the widest filter.
        rows: Words in each block.
        pad: The id of padding inside a word, if it is not that of `chars.py`.

    Yields:
        Which tokens a block holds, shape (m,), m <= rows; their ids, shape (rows, C' <= C), the
        last rows repeating others.
    """
    needed = (spelled_length(ids) if pad is None else spelled_length(ids, pad)) + max_width
    columns = np.minimum(-(-needed // _COLUMN_STEP) * _COLUMN_STEP, ids.shape[1])
    for width in np.unique(columns):
        members = np.flatnonzero(columns == width)
        for block, filled in filled_blocks(members, rows):
            yield block, ids[filled, :width]


def filled_blocks(members: Ids, rows: int) -> Iterator[tuple[Ids, Ids]]:
    """Cut a list into blocks, each with the same one filled up to `rows` members."""
    for start in range(0, len(members), rows):
        block = members[start : start + rows]
        yield block, np.resize(block, rows)
