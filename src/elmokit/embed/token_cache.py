"""x_k of each distinct token, computed once and remembered within a bound.

A token's x_k must not depend on what was computed before or beside it, or the same sentence would
give other bits on another day. Matrix products of other sizes sum in another order, so tokens are
always encoded in blocks of one fixed shape per word length, which never changes for a token. In
models whose sizes are multiples of 16, as all released ones are, the rows of such a block come out
the same to the bit wherever they stand (a test checks it); in odd sizes to the last bit or two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.model.bilm import BiLM
from elmokit.model.charcnn import CharacterEncoder
from elmokit.model.chars import spelled_length

_ROWS_ON_CPU = 32
_ROWS_ON_GPU = 512
_COLUMN_STEP = 8

DEFAULT_BYTES = 256 * 2**20


class TokenCache:
    """A bounded table of token vectors in front of the token encoder.

    Args:
        bilm: The model.
        spell: Ids of some tokens as the encoder reads them, shape (n, C) or (n,).
        max_bytes: Bound on the memory of the table. The oldest tokens make room for new ones.
    """

    def __init__(
        self,
        bilm: BiLM,
        spell: Callable[[Sequence[str]], NDArray[np.int64]],
        max_bytes: int = DEFAULT_BYTES,
    ) -> None:
        self._bilm = bilm
        self._spell = spell
        weight = next(bilm.parameters())
        dim = bilm.config.lstm.projection_dim
        self._capacity = max(1, max_bytes // (dim * weight.element_size()))
        self._table = torch.empty(0, dim, dtype=weight.dtype, device=weight.device)
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
        places = [self._places.get(token, -1) for token in tokens]
        missing = [token for token, place in zip(tokens, places, strict=True) if place < 0]
        self.hits += len(tokens) - len(missing)
        self.misses += len(missing)
        index = torch.tensor(places, dtype=torch.long, device=self._table.device)
        if not missing:
            return self._table[index]
        new = self._encode(missing)
        out = new.new_empty(len(tokens), new.shape[1])
        out[index < 0] = new
        out[index >= 0] = self._table[index[index >= 0]]  # before `_store` may overwrite a place
        self._store(missing, new)
        return out

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
        self._table[torch.tensor(places, device=self._table.device)] = vectors

    def _grow(self, rows: int) -> None:
        if rows > len(self._table):
            larger = self._table.new_empty(
                min(self._capacity, max(1024, 2 * rows)), self._table.shape[1]
            )
            larger[: len(self._table)] = self._table
            self._table = larger

    def _encode(self, tokens: list[str]) -> Tensor:
        device = self._table.device
        ids = self._spell(tokens)
        encoder = self._bilm.encoder
        if not isinstance(encoder, CharacterEncoder):
            looked_up: Tensor = encoder(torch.from_numpy(ids).to(device))
            return looked_up
        rows = _ROWS_ON_CPU if device.type == "cpu" else _ROWS_ON_GPU
        columns = _columns(ids, encoder.config.max_width)
        out = self._table.new_empty(len(tokens), self._table.shape[1])
        for width in np.unique(columns):
            members = np.flatnonzero(columns == width)
            for start in range(0, len(members), rows):
                block = members[start : start + rows]
                filled = np.resize(block, rows)  # repeats members up to the fixed shape
                x = encoder(torch.from_numpy(ids[filled][:, :width]).to(device))
                out[torch.from_numpy(block).to(device)] = x[: len(block)]
        return out


def _columns(ids: NDArray[np.int64], max_width: int) -> NDArray[np.int64]:
    """Choose how many character columns each token needs.

    The maximum over windows only has to see one window of padding alone, so a short word can be cut
    after `max_width` padding characters without changing its vector.
    """
    needed = spelled_length(ids) + max_width
    stepped = -(-needed // _COLUMN_STEP) * _COLUMN_STEP
    columns: NDArray[np.int64] = np.minimum(stepped, ids.shape[1])
    return columns
