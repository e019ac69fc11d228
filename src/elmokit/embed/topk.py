"""Find the k best scores, for exact searches in texts of any length.

Each row is a separate search. Scores are added in blocks, in any order. If scores are equal, the
smaller id wins.

With groups, only the best candidate of each group is kept. For example, a group can contain all
tokens of a word.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError

# Vectors are reproducible to about 2e-6, so smaller differences between scores are ignored.
_DECIMALS = 6
_MAX_K = 10**6  # limits the memory, which is allocated at the start


class TopK:
    """Collects the k best scores of each row.

    Args:
        k: Number of scores to keep.
        rows: Number of searches.

    Attributes:
        scores: The best scores, best first, shape (rows, k), padded with -inf.
        ids: The ids of the best scores, shape (rows, k), padded with -1.
    """

    def __init__(self, k: int, rows: int = 1) -> None:
        if not 1 <= k <= _MAX_K:
            raise ConfigError(f"Invalid value for k: {k}. Expected 1 to {_MAX_K:,}.")
        self.scores: FloatArray = np.full((rows, k), -np.inf, dtype=np.float32)
        self.ids: NDArray[np.int64] = np.full((rows, k), -1, dtype=np.int64)
        self._groups: NDArray[np.int64] = np.full((rows, k), -1, dtype=np.int64)

    def add(
        self,
        scores: FloatArray,
        ids: NDArray[np.int64],
        groups: NDArray[np.int64] | None = None,
    ) -> None:
        """Add a block of candidates.

        Args:
            scores: The scores, shape (rows, n). They are rounded to six decimal places. -inf
                excludes a candidate.
            ids: The ids of the candidates, shape (n,) or (rows, n). They must not be negative, and
                each id can be added only once.
            groups: The group of each candidate, with the shape of `ids`. Pass groups for all
                blocks or for none.
        """
        scores = np.round(scores, _DECIMALS)
        ids = np.broadcast_to(ids, scores.shape)
        groups = ids if groups is None else np.broadcast_to(groups, scores.shape)
        for row, values in enumerate(scores):
            new = np.flatnonzero((values >= self.scores[row, -1]) & (values > -np.inf))
            if new.size:
                self._merge(row, values[new], ids[row, new], groups[row, new])

    def row(self, row: int) -> list[tuple[int, float]]:
        """Return the ids and scores of a row, best first."""
        pairs = zip(self.ids[row].tolist(), self.scores[row].tolist(), strict=True)
        return [(candidate, score) for candidate, score in pairs if candidate >= 0]

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
        for stored, values in ((self.scores, scores), (self.ids, ids), (self._groups, groups)):
            stored[row, : best.size] = values[best]
