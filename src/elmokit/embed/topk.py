"""The k best scores of blocks of scores, for exact searches in texts of any length.

Each row is a separate search. Blocks can be added in any order; the result is the same as for all
scores at once. For equal scores, the smaller id is better.

With groups, only the best score of each group is listed, for example one token per word. Dropped
members of a group need not be stored: another member is listed only if it is among the k best.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError

# Vectors are reproducible to about 2e-6; scores that differ less are equal.
_DIGITS = 6


class TopK:
    """The k best scores of each row so far.

    Args:
        k: Number of scores to keep.
        rows: Number of searches.

    Attributes:
        scores: The best first, shape (rows, k); -inf if there are fewer than k.
        ids: Their ids, shape (rows, k); -1 if there are fewer than k.
    """

    def __init__(self, k: int, rows: int = 1) -> None:
        if k < 1:
            raise ConfigError(f"Invalid k {k}: expected an integer of at least 1.")
        self.scores: FloatArray = np.full((rows, k), -np.inf, dtype=np.float32)
        self.ids: NDArray[np.int64] = np.full((rows, k), -1, dtype=np.int64)
        self._groups: NDArray[np.int64] = np.full((rows, k), -1, dtype=np.int64)

    def add(
        self,
        scores: FloatArray,
        ids: NDArray[np.int64],
        groups: NDArray[np.int64] | None = None,
    ) -> None:
        """Add a block.

        Args:
            scores: Shape (rows, n); they are rounded to six digits. -inf excludes a candidate.
            ids: The ids of the scores, shape (n,) or (rows, n), not negative, each added once.
            groups: The group of each candidate, with the shape of `ids`. Either all blocks have
                groups or none has.
        """
        scores = np.round(scores, _DIGITS)
        ids = np.broadcast_to(ids, scores.shape)
        groups = ids if groups is None else np.broadcast_to(groups, scores.shape)
        for row, own in enumerate(scores):
            new = np.flatnonzero((own >= self.scores[row, -1]) & (own > -np.inf))
            if new.size:
                self._merge(row, own[new], ids[row, new], groups[row, new])

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
