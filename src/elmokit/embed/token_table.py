"""x_k of each distinct token, computed once and remembered within a bound: the book-keeping."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

DEFAULT_BYTES = 256 * 2**20


class Rows(Protocol):
    """Vectors as rows: a numpy array or a tensor of torch."""

    def __getitem__(self, places: Any, /) -> Self: ...

    def __setitem__(self, places: Any, values: Any, /) -> None: ...

    def __len__(self) -> int: ...


Table = TypeVar("Table", bound=Rows)


class TokenTable(ABC, Generic[Table]):
    """A bounded table of token vectors in front of a token encoder.

    Args:
        capacity: Tokens that are remembered. The oldest make room for new ones.
        lock: Held while the table is used: the model's own, because encoding uses its engine.
    """

    def __init__(self, capacity: int, lock: threading.RLock) -> None:
        self._capacity = max(1, capacity)
        self._lock = lock
        self._table = self._empty(0)
        self._places: dict[str, int] = {}
        self._tokens: list[str] = []  # the token in each place of the table
        self._next = 0  # the place to be filled next, once all are in use
        self.hits = 0
        self.misses = 0

    @abstractmethod
    def _empty(self, rows: int) -> Table:
        """Return so many rows, not filled."""

    @abstractmethod
    def encode(self, tokens: Sequence[str]) -> Table:
        """Compute x of distinct tokens, whatever is remembered; the caller holds the lock."""

    def _index(self, places: NDArray[np.int64]) -> Any:
        """Return what a table is indexed with."""
        return places

    def vectors(self, tokens: Sequence[str]) -> Table:
        """Return x of distinct tokens.

        Returns:
            Shape (len(tokens), D), in the given order; a copy.
        """
        with self._lock:
            return self._vectors(tokens)

    def _vectors(self, tokens: Sequence[str]) -> Table:
        places = np.array([self._places.get(token, -1) for token in tokens], dtype=np.int64)
        missing = [token for token, place in zip(tokens, places.tolist(), strict=True) if place < 0]
        self.hits += len(tokens) - len(missing)
        self.misses += len(missing)
        if not missing:
            return self._table[self._index(places)]
        new = self.encode(missing)
        out = self._empty(len(tokens))
        out[self._index(np.flatnonzero(places < 0))] = new
        known = np.flatnonzero(places >= 0)
        # Before `_store` may overwrite a place.
        out[self._index(known)] = self._table[self._index(places[known])]
        self._store(missing, new)
        return out

    @property
    def hit_rate(self) -> float:
        """The share of the tokens asked for that were there, each once per batch."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0

    def clear(self) -> None:
        """Forget all tokens; the counts of hits and misses go on."""
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
            larger = self._empty(min(self._capacity, max(1024, 2 * rows)))
            larger[: len(self._table)] = self._table
            self._table = larger
