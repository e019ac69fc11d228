"""Engines run a biLM at inference: the reference modules, or a faster implementation for a device.

`exact_engine` selects a float32 engine; `elmokit.embed.engine` adds those of lower precision. All
compute the same as the modules of `elmokit.model`, within their precision.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from elmokit.model.bilm import BiLM
from elmokit.model.charcnn import CharacterEncoder
from elmokit.model.lexicon_encoder import LexiconEncoder
from elmokit.model.lstm import LstmState
from elmokit.model.packing import Packing
from elmokit.model.trimming import trimmed_blocks

_ROWS = 512


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

    def encode(self, ids: Tensor) -> Tensor:
        """Return x of distinct tokens; see `Engine`."""
        device = self._weight.device
        encoder = self._bilm.encoder
        if isinstance(encoder, LexiconEncoder):
            return encoder.in_blocks(ids)
        if not isinstance(encoder, CharacterEncoder):
            looked_up: Tensor = encoder(ids.to(device))
            return looked_up
        out = self._weight.new_empty(len(ids), self._bilm.config.lstm.projection_dim)
        for block, trimmed in trimmed_blocks(ids.numpy(), encoder.config.max_width, _ROWS):
            x = encoder(torch.from_numpy(trimmed).to(device))
            out[torch.from_numpy(block).to(device)] = x[: len(block)]
        return out

    def contextualize(
        self,
        x: Tensor,
        packing: Packing,
        state: LstmState | None = None,
        backward_x: Tensor | None = None,
    ) -> tuple[Tensor, LstmState]:
        """Run both language models, as `BiLM.contextualize` does."""
        return self._bilm.contextualize(x, packing, state, backward_x)


def exact_engine(bilm: BiLM) -> Engine:
    """Return the fastest float32 implementation of a biLM for the device it is on.

    It copies the weights: create a new one after changing the biLM.
    """
    weight = next(bilm.parameters())
    if weight.dtype != torch.float32:
        return PlainEngine(bilm)
    if weight.device.type == "cuda":
        return cuda_engine(bilm, torch.float32) or PlainEngine(bilm)
    from elmokit.model.kernels.cpu_exact import exact_reader

    return exact_reader(bilm)


def cuda_engine(bilm: BiLM, dtype: torch.dtype) -> Engine | None:
    """Return the CUDA implementation; None without Triton, or for LSTMs without a projection."""
    if not bilm.config.lstm.has_projection:
        return None
    try:
        from elmokit.model.kernels.cuda_reader import CudaReader
    except ImportError:  # Triton does not support this system
        return None
    return CudaReader(bilm, dtype)
