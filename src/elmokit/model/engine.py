"""Engines run a biLM at inference: the reference modules, or a faster implementation for a device.

`exact_engine` selects a float32 engine; `elmokit.embed.precision` adds engines of lower precision.
All compute the same as the modules of `elmokit.model`, within their precision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from elmokit.device import to_device
from elmokit.model.bilm import BiLM
from elmokit.model.charcnn import WordEncoder
from elmokit.model.lexicon_encoder import LexiconEncoder
from elmokit.model.lstm import LstmState
from elmokit.model.packing import Packing
from elmokit.model.trimming import trimmed_blocks

# Words per block.
_ROWS, _LEXICON_ROWS = 512, 32


class Engine(Protocol):
    """An implementation of a biLM."""

    def encode(self, ids: Tensor) -> Tensor:
        """Return x of distinct tokens, on the engine's device.

        A token's x does not depend on the other tokens.

        Args:
            ids: Character ids (n, C) or word ids (n,), on the CPU.

        Returns:
            Shape (n, D).
        """

    def contextualize(
        self,
        x: Tensor,
        packing: Packing,
        state: LstmState | None = None,
        backward_x: Tensor | None = None,
    ) -> tuple[Tensor, LstmState]:
        """Run both language models, as `BiLM.contextualize` does."""


class PlainEngine:
    """The reference modules, with words encoded in blocks of fixed shapes."""

    def __init__(self, bilm: BiLM) -> None:
        self._bilm = bilm
        self._weight = next(bilm.parameters())
        self.contextualize = bilm.contextualize

    def encode(self, ids: Tensor) -> Tensor:
        """Return x of distinct tokens; see `Engine`."""
        encoder = self._bilm.encoder
        if isinstance(encoder, WordEncoder):
            looked_up: Tensor = encoder(ids.to(self._weight.device))
            return looked_up
        out = self._weight.new_empty(len(ids), self._bilm.config.lstm.projection_dim)
        width = encoder.config.max_width
        if isinstance(encoder, LexiconEncoder):  # the first column is the id of the word
            encode_in_blocks(encoder, ids, out, width + 1, _LEXICON_ROWS, encoder.known.pad)
        else:
            encode_in_blocks(encoder, ids, out, width, _ROWS)
        return out


def encode_in_blocks(
    encode: Callable[[Tensor], Tensor],
    ids: Tensor,
    out: Tensor,
    max_width: int,
    rows: int,
    pad: int | None = None,
) -> None:
    """Encode distinct tokens in blocks of fixed shapes, see `trimming.py`.

    Args:
        encode: The encoder of a block, (rows, C) -> (rows, D).
        ids: Character ids, shape (n, C), on the CPU.
        out: The result, shape (n, D).
        max_width: Width of the widest filter.
        rows: Words per block.
        pad: The padding id inside a word, if it is not that of `chars.py`.
    """
    for block, trimmed in trimmed_blocks(ids.numpy(), max_width, rows, pad):
        x = encode(to_device(trimmed, out.device))
        out.index_copy_(0, to_device(block, out.device), x[: len(block)].to(out.dtype))


def exact_engine(bilm: BiLM) -> Engine:
    """Return the fastest float32 implementation of a biLM for the device it is on.

    It copies the weights: create a new one after changing the biLM.
    """
    weight = next(bilm.parameters())
    if weight.dtype != torch.float32:
        return PlainEngine(bilm)
    if weight.device.type == "cuda":
        return cuda_engine(bilm, torch.float32) or PlainEngine(bilm)
    from elmokit.model.kernels.cpu_reader import TorchReader

    return TorchReader(bilm)


def cuda_engine(bilm: BiLM, dtype: torch.dtype) -> Engine | None:
    """Return the CUDA implementation; None without Triton, or for LSTMs without a projection."""
    if not bilm.config.lstm.has_projection:
        return None
    try:
        from elmokit.model.kernels.cuda_reader import CudaReader
    except ImportError:  # Triton does not support this system
        return None
    return CudaReader(bilm, dtype)
