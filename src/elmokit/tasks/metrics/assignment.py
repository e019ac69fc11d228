"""The best way to pair the rows of a table with its columns, one to one.

The Hungarian method with shortest augmenting paths: rows are taken in one by one, and each may make
earlier ones change their column; prices on rows and columns tell which change costs least. Cubic
time at worst, far less where most values are zero.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def best_pairs(values: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pair rows with columns so that the sum of the values is largest.

    Args:
        values: A table (N, M) of finite numbers.

    Returns:
        min(N, M) pairs (row, column), sorted by row.
    """
    if values.shape[0] > values.shape[1]:
        return sorted((row, column) for column, row in best_pairs(values.T))
    n, m = values.shape
    cost = -np.asarray(values, dtype=np.float64)
    row_price = np.zeros(n)
    price = np.zeros(m + 1)  # of the columns; the last is where a new row waits for one
    owner = np.full(m + 1, -1)  # the row of each column
    for row in range(n):
        column = m
        owner[column] = row
        least = np.full(m, np.inf)  # the cheapest way to each column from those seen
        before = np.full(m, m)  # the column that way comes from
        seen = np.zeros(m + 1, dtype=bool)
        while owner[column] >= 0:
            seen[column] = True
            here = owner[column]
            way = cost[here] - row_price[here] - price[:m]
            cheaper = ~seen[:m] & (way < least)
            least[cheaper] = way[cheaper]
            before[cheaper] = column
            column = int(np.where(seen[:m], np.inf, least).argmin())
            step = least[column]
            row_price[owner[seen]] += step
            price[seen] -= step
            least[~seen[:m]] -= step
        while column != m:  # every row on the way moves on by one
            owner[column] = owner[before[column]]
            column = int(before[column])
    return sorted((int(row), column) for column, row in enumerate(owner[:m]) if row >= 0)
