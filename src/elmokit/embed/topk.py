"""The best of many scores, block by block: what an exact search keeps of a text of any length.

Several searches run side by side, one per row. Scores come in blocks, in any order, and what is
kept at the end is the same as if all had come at once. Of equal scores the smaller id wins.

With groups only the best of each group is kept (each word once, say). That needs no more memory: a
member of a group that was dropped comes back only if it is itself among the best.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError

# Vectors agree to about 2e-6 wherever they are computed; closer scores than that are ties.
_DIGITS = 6


class TopK:
    """The k best scores of each row so far.

    Args:
        k: How many to keep.
        rows: How many searches run side by side.

    Attributes:
        scores: The best first, shape (rows, k); -inf where fewer than k were seen.
        ids: What they belong to, shape (rows, k); -1 where fewer than k were seen.
    """

    def __init__(self, k: int, rows: int = 1) -> None:
        if k < 1:
            raise ConfigError(f"k, how many to list, should be 1 or more, found {k}.")
        self.scores: FloatArray = np.full((rows, k), -np.inf, dtype=np.float32)
        self.ids: NDArray[np.int64] = np.full((rows, k), -1, dtype=np.int64)
        self._groups: NDArray[np.int64] = np.full((rows, k), -1, dtype=np.int64)

    def add(
        self,
        scores: FloatArray,
        ids: NDArray[np.int64],
        groups: NDArray[np.int64] | None = None,
    ) -> None:
        """Look at a block.

        Args:
            scores: Shape (rows, n), rounded here to six digits. -inf leaves a candidate out.
            ids: What each score belongs to, shape (n,) or (rows, n), 0 or more, never seen before.
            groups: Which candidates are the same for the user, shape as `ids`. Either all blocks
                have groups or none has.
        """
        scores = np.round(scores, _DIGITS)
        ids = np.broadcast_to(ids, scores.shape)
        groups = ids if groups is None else np.broadcast_to(groups, scores.shape)
        for row, found in enumerate(scores):
            new = np.flatnonzero((found >= self.scores[row, -1]) & (found > -np.inf))
            if new.size:
                self._merge(row, found[new], ids[row, new], groups[row, new])

    def row(self, row: int) -> list[tuple[int, float]]:
        """Return the ids and scores of a row, the best first."""
        pairs = zip(self.ids[row].tolist(), self.scores[row].tolist(), strict=True)
        return [(number, score) for number, score in pairs if number >= 0]

    def _merge(
        self,
        row: int,
        scores: FloatArray,
        ids: NDArray[np.int64],
        groups: NDArray[np.int64],
    ) -> None:
        old = np.flatnonzero(self.ids[row] >= 0)
        scores = np.concatenate([self.scores[row, old], scores])
        ids = np.concatenate([self.ids[row, old], ids])
        groups = np.concatenate([self._groups[row, old], groups])
        order = np.lexsort((ids, -scores))
        _, first = np.unique(groups[order], return_index=True)
        best = order[np.sort(first)[: self.ids.shape[1]]]
        for kept, values in ((self.scores, scores), (self.ids, ids), (self._groups, groups)):
            kept[row, : best.size] = values[best]
