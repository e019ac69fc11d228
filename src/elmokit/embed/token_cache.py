"""The vectors of tokens that torch has computed, on its device."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.device import to_device
from elmokit.embed.token_table import DEFAULT_BYTES, TokenTable


class TokenCache(TokenTable[Tensor]):
    """A bounded table of token vectors in front of the token encoder.

    Args:
        encode: Ids (n, C) or (n,) of distinct tokens -> x (n, D): the engine's.
        spell: Ids of some tokens as the encoder reads them, shape (n, C) or (n,).
        like: A tensor of the model: x has its device and type.
        dim: D.
        lock: The model's.
        max_bytes: Bound on the memory of the table. The oldest tokens make room for new ones.
    """

    def __init__(
        self,
        encode: Callable[[Tensor], Tensor],
        spell: Callable[[Sequence[str]], NDArray[np.int64]],
        *,
        like: Tensor,
        dim: int,
        lock: threading.RLock,
        max_bytes: int = DEFAULT_BYTES,
    ) -> None:
        self._encode = encode
        self._spell = spell
        self._like = like.new_empty(0, dim)
        super().__init__(max_bytes // (dim * like.element_size()), lock)

    def _empty(self, rows: int) -> Tensor:
        return self._like.new_empty(rows, self._like.shape[1])

    def encode(self, tokens: Sequence[str]) -> Tensor:
        """Compute x of distinct tokens."""
        return self._encode(torch.from_numpy(self._spell(tokens)))

    def _index(self, places: NDArray[np.int64]) -> Tensor:
        return to_device(places, self._like.device)
