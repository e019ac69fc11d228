"""x_k of each distinct token, computed once and remembered within a bound."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.embed.landing import to_device

DEFAULT_BYTES = 256 * 2**20


class TokenCache:
    """A bounded table of token vectors in front of the token encoder.

    Args:
        encode: Ids (n, C) or (n,) of distinct tokens -> x (n, D): the engine's.
        spell: Ids of some tokens as the encoder reads them, shape (n, C) or (n,).
        like: A tensor of the model: x has its device and type.
        dim: D.
        max_bytes: Bound on the memory of the table. The oldest tokens make room for new ones.
    """

    def __init__(
        self,
        encode: Callable[[Tensor], Tensor],
        spell: Callable[[Sequence[str]], NDArray[np.int64]],
        *,
        like: Tensor,
        dim: int,
        max_bytes: int = DEFAULT_BYTES,
    ) -> None:
        self._encode = encode
        self._spell = spell
        self._capacity = max(1, max_bytes // (dim * like.element_size()))
        self._table = torch.empty(0, dim, dtype=like.dtype, device=like.device)
        self._places: dict[str, int] = {}
        self._tokens: list[str] = []  # the token in each place of the table
        self._next = 0  # the place to be filled next, once all are in use
        self.hits = 0
        self.misses = 0

    def vectors(self, tokens: Sequence[str]) -> Tensor:
        """Return x of distinct tokens.

        Returns:
            Shape (len(tokens), D), in the given order.
        """
        places = np.array([self._places.get(token, -1) for token in tokens], dtype=np.int64)
        missing = [token for token, place in zip(tokens, places.tolist(), strict=True) if place < 0]
        self.hits += len(tokens) - len(missing)
        self.misses += len(missing)
        device = self._table.device
        if not missing:
            return self._table[to_device(places, device)]
        new = self._encode(torch.from_numpy(self._spell(missing)))
        out = new.new_empty(len(tokens), new.shape[1])
        out[to_device(np.flatnonzero(places < 0), device)] = new
        known = np.flatnonzero(places >= 0)
        # Before `_store` may overwrite a place.
        out[to_device(known, device)] = self._table[to_device(places[known], device)]
        self._store(missing, new)
        return out

    @property
    def hit_rate(self) -> float:
        """The share of the tokens asked for that were there, each once per batch."""
        asked = self.hits + self.misses
        return self.hits / asked if asked else 0.0

    def clear(self) -> None:
        """Forget all tokens; the counts of hits and misses go on."""
        self._places.clear()
        self._tokens.clear()
        self._next = 0

    def __len__(self) -> int:
        return len(self._tokens)

    def _store(self, tokens: list[str], vectors: Tensor) -> None:
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
        self._table[to_device(np.array(places), self._table.device)] = vectors

    def _grow(self, rows: int) -> None:
        if rows > len(self._table):
            larger = self._table.new_empty(
                min(self._capacity, max(1024, 2 * rows)), self._table.shape[1]
            )
            larger[: len(self._table)] = self._table
            self._table = larger
