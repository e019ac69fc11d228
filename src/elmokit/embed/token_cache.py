"""The token cache: x_k of each distinct token, computed once and stored up to a size limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Default memory limit of a cache, in bytes.
MAX_BYTES = 256 * 2**20


class TokenCache:
    """Stores the output of a token encoder in a table with a limited size.

    The table is a NumPy array or a tensor, depending on `allocate`.

    Args:
        encode: Computes x_k of distinct tokens, (n, D). The caller holds the lock.
        allocate: Returns an uninitialized table with a given number of rows.
        lock: The lock of the model, which is held during all operations, because encoding uses the
            engine of the model.
        capacity: Maximum number of tokens. New tokens replace the oldest tokens.
        index: Converts row numbers to an index into the table.

    Attributes:
        hits: Number of tokens that were in the cache. A token counts once per call.
        misses: Number of tokens that were not in the cache.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[str]], Any],
        allocate: Callable[[int], Any],
        lock: threading.RLock,
        capacity: int,
        index: Callable[[NDArray[np.int64]], Any] = lambda rows: rows,
    ) -> None:
        self.encode = encode
        self._allocate = allocate
        self._lock = lock
        self._capacity = max(1, capacity)
        self._index = index
        self._table = allocate(0)
        self._rows: dict[str, int] = {}
        self._tokens: list[str] = []  # the token in each row of the table
        self._next = 0  # the row to be filled next
        self.hits = 0
        self.misses = 0

    def vectors(self, tokens: Sequence[str]) -> Any:
        """Return a copy of x_k of distinct tokens, (n, D), in the given order."""
        with self._lock:
            rows = np.array([self._rows.get(token, -1) for token in tokens], dtype=np.int64)
            is_new = rows < 0
            missing = [tokens[i] for i in is_new.nonzero()[0].tolist()]
            self.hits += len(tokens) - len(missing)
            self.misses += len(missing)
            if not missing:
                return self._table[self._index(rows)]
            encoded = self.encode(missing)
            out = self._allocate(len(tokens))
            out[self._index(np.flatnonzero(is_new))] = encoded
            # Copy the cached rows before `_store` overwrites them.
            out[self._index(np.flatnonzero(~is_new))] = self._table[self._index(rows[~is_new])]
            self._store(missing, encoded)
            return out

    def clear(self) -> None:
        """Remove all tokens, without resetting `hits` and `misses`."""
        with self._lock:
            self._rows.clear()
            self._tokens.clear()
            self._next = 0

    def __len__(self) -> int:
        return len(self._tokens)

    def _store(self, tokens: list[str], vectors: Any) -> None:
        tokens, vectors = tokens[-self._capacity :], vectors[-self._capacity :]
        needed = min(self._capacity, len(self._tokens) + len(tokens))
        if needed > len(self._table):
            larger = self._allocate(min(self._capacity, max(1024, 2 * needed)))
            larger[: len(self._table)] = self._table
            self._table = larger
        rows = (self._next + np.arange(len(tokens))) % self._capacity
        self._next = (self._next + len(tokens)) % self._capacity
        for token, row in zip(tokens, rows.tolist(), strict=True):
            if row < len(self._tokens):
                del self._rows[self._tokens[row]]
                self._tokens[row] = token
            else:
                self._tokens.append(token)
            self._rows[token] = row
        self._table[self._index(rows)] = vectors
