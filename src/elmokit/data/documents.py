"""Split documents that are too long for one row of a batch.

Each row reads whole documents. If a single document made up most of the corpus (a text without
empty lines is one document), only one row could be filled. Documents longer than a row's share of
the corpus are therefore split at sentence ends.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Parts are at least this long, even if fewer rows are used, because training needs context.
SHORTEST_SHARE = 512


def split_long_documents(
    tokens: NDArray[np.uint32], documents: NDArray[np.int64], rows: int, end: int
) -> NDArray[np.int64]:
    """Return document boundaries in the form of `documents`, with long documents split.

    Args:
        tokens: The concatenated documents.
        documents: The start of each document, and the end of the last one.
        rows: Number of rows in a batch.
        end: Id of the end-of-sentence token.
    """
    longest = max(SHORTEST_SHARE, -(-int(documents[-1] - documents[0]) // rows))
    lengths = np.diff(documents)
    long = np.flatnonzero(lengths > longest)
    cuts = [
        _cuts(tokens, int(documents[i]), int(documents[i + 1]), longest, end) for i in long.tolist()
    ]
    return np.unique(np.concatenate([documents, *cuts])) if cuts else documents


def _cuts(
    tokens: NDArray[np.uint32], begin: int, stop: int, longest: int, end: int
) -> NDArray[np.int64]:
    """Return where to split one document: into parts of equal length, moved to sentence ends."""
    ends = np.flatnonzero(tokens[begin:stop] == end) + begin + 1
    n = -(-(stop - begin) // longest)
    wanted = begin + np.arange(1, n) * (stop - begin) // n
    index = np.searchsorted(ends, wanted)
    return np.asarray(ends[index[index < len(ends)]], dtype=np.int64)
