"""The token cache: x_k of each distinct token, computed once and stored up to a size limit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

#: Default limit of the memory of a cache.
MAX_BYTES = 256 * 2**20


class Rows(Protocol):
    """Vectors as rows: a numpy array or a torch tensor."""

    def __getitem__(self, places: Any, /) -> Self: ...

    def __setitem__(self, places: Any, values: Any, /) -> None: ...

    def __len__(self) -> int: ...


Table = TypeVar("Table", bound=Rows)


class TokenCache(Generic[Table]):
    """A table of token vectors with a size limit, in front of a token encoder.

    Args:
        encode: Computes x of distinct tokens, (n, D). The caller holds the lock.
        allocate: Returns an uninitialized table with this many rows.
        lock: Held while the table is used: the lock of the model, because encoding uses its engine.
        capacity: Maximum number of tokens. New tokens replace the oldest ones.
        index: Converts places to what the table is indexed with.

    Attributes:
        hits: How many tokens were in the cache, each counted once per call.
        misses: How many were not.
    """

    def __init__(
        self,
        encode: Callable[[Sequence[str]], Table],
        allocate: Callable[[int], Table],
        lock: threading.RLock,
        capacity: int,
        index: Callable[[NDArray[np.int64]], Any] = lambda places: places,
    ) -> None:
        self.encode = encode
        self._allocate = allocate
        self._lock = lock
        self._capacity = max(1, capacity)
        self._index = index
        self._table = allocate(0)
        self._places: dict[str, int] = {}
        self._tokens: list[str] = []  # the token in each place of the table
        self._next = 0  # the place to be filled next, once all are in use
        self.hits = 0
        self.misses = 0

    def vectors(self, tokens: Sequence[str]) -> Table:
        """Return x of distinct tokens, (n, D), in their order; a copy."""
        with self._lock:
            places = np.array([self._places.get(token, -1) for token in tokens], dtype=np.int64)
            missing = [tokens[i] for i in (places < 0).nonzero()[0].tolist()]
            self.hits += len(tokens) - len(missing)
            self.misses += len(missing)
            if not missing:
                return self._table[self._index(places)]
            new = self.encode(missing)
            out = self._allocate(len(tokens))
            out[self._index(np.flatnonzero(places < 0))] = new
            known = np.flatnonzero(places >= 0)
            # Before `_store` may overwrite a place.
            out[self._index(known)] = self._table[self._index(places[known])]
            self._store(missing, new)
            return out

    @property
    def hit_rate(self) -> float:
        """The fraction of requested tokens that were in the cache."""
        requested = self.hits + self.misses
        return self.hits / requested if requested else 0.0

    def clear(self) -> None:
        """Remove all tokens; `hits` and `misses` keep their values."""
        with self._lock:
            self._places.clear()
            self._tokens.clear()
            self._next = 0

    def __len__(self) -> int:
        return len(self._tokens)

    def _store(self, tokens: list[str], vectors: Table) -> None:
        tokens, vectors = tokens[-self._capacity :], vectors[-self._capacity :]
        free = self._capacity - len(self._tokens)
        first = len(self._tokens)
        self._grow(min(self._capacity, first + len(tokens)))
        places = list(range(first, first + min(free, len(tokens))))
        while len(places) < len(tokens):
            places.append(self._next)
            self._next = (self._next + 1) % self._capacity
        for token, place in zip(tokens, places, strict=True):
            if place < len(self._tokens):
                del self._places[self._tokens[place]]
                self._tokens[place] = token
            else:
                self._tokens.append(token)
            self._places[token] = place
        self._table[self._index(np.array(places))] = vectors

    def _grow(self, rows: int) -> None:
        if rows > len(self._table):
            larger = self._allocate(min(self._capacity, max(1024, 2 * rows)))
            larger[: len(self._table)] = self._table
            self._table = larger
