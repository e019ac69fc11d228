"""Documents too long for one row of a batch, cut where a sentence ends.

A row reads a document from one end to the other. If one document were most of a corpus (a text
without empty lines is a single one), all rows would have to read it at the same time, word for
word: a batch of one row's worth. So what is longer than a row's share of the corpus is cut.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: No piece is made shorter than this for the sake of more rows: context is what is learned.
SHORTEST_SHARE = 512


def pieces(
    tokens: NDArray[np.uint32], documents: NDArray[np.int64], rows: int, end: int
) -> NDArray[np.int64]:
    """Return where documents begin, as `documents` has it, with long ones cut.

    Args:
        tokens: All documents, one after another.
        documents: Where each begins, and the end of the last.
        rows: Rows that read them at the same time.
        end: The id that ends a sentence.
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
    """Return where to cut one document: into equal pieces, but behind a whole sentence."""
    ends = np.flatnonzero(tokens[begin:stop] == end) + begin + 1
    n = -(-(stop - begin) // longest)
    wanted = begin + np.arange(1, n) * (stop - begin) // n
    found = np.searchsorted(ends, wanted)
    return np.asarray(ends[found[found < len(ends)]], dtype=np.int64)
