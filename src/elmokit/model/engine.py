"""Engines, which run a biLM for inference with the reference modules or a faster implementation.

`exact_engine` selects a float32 engine, and `elmokit.embed.precision` selects engines with lower
precision. Within their precision, all engines give the same results as the reference modules.
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

# Number of words per block, for a character CNN and for an encoder with a lexicon.
_ROWS, _LEXICON_ROWS = 512, 32


class Engine(Protocol):
    """An implementation of a biLM for inference."""

    def encode(self, ids: Tensor) -> Tensor:
        """Encode distinct tokens. The result for a token does not depend on the other tokens.

        Args:
            ids: Character ids (n, C) or word ids (n,), on the CPU.

        Returns:
            x_k on the engine's device, shape (n, D).
        """

    def contextualize(
        self,
        x: Tensor,
        packing: Packing,
        state: LstmState | None = None,
        backward_x: Tensor | None = None,
    ) -> tuple[Tensor, LstmState]:
        """Compute the layers, as `BiLM.contextualize` does."""


class PlainEngine:
    """Runs the reference modules, and encodes words in blocks of fixed shapes."""

    def __init__(self, bilm: BiLM) -> None:
        self._bilm = bilm
        self._weight = next(bilm.parameters())
        self.contextualize = bilm.contextualize

    def encode(self, ids: Tensor) -> Tensor:
        """Encode distinct tokens; see `Engine`."""
        encoder = self._bilm.encoder
        if isinstance(encoder, WordEncoder):
            x: Tensor = encoder(ids.to(self._weight.device))
            return x
        out = self._weight.new_empty(len(ids), self._bilm.config.lstm.projection_dim)
        width = encoder.config.max_width
        if isinstance(encoder, LexiconEncoder):  # the first column is the id of the word
            pad = encoder.required_lexicon.pad
            encode_in_blocks(encoder, ids, out, width + 1, _LEXICON_ROWS, pad)
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
    """Encode distinct tokens in blocks of fixed shapes (see `trimming.py`).

    Args:
        encode: Function that encodes a block, (rows, C) -> (rows, D).
        ids: Character ids, shape (n, C), on the CPU.
        out: The tensor to which the result is written, shape (n, D).
        max_width: Width of the widest filter.
        rows: Number of words per block.
        pad: The padding id inside words. Default: the id in `chars.py`.
    """
    for block, trimmed in trimmed_blocks(ids.numpy(), max_width, rows, pad):
        x = encode(to_device(trimmed, out.device))
        out.index_copy_(0, to_device(block, out.device), x[: len(block)].to(out.dtype))


def exact_engine(bilm: BiLM) -> Engine:
    """Return the fastest float32 engine for a biLM on its device.

    Engines may copy the weights. If the weights change, create a new engine.
    """
    weight = next(bilm.parameters())
    if weight.dtype != torch.float32:
        return PlainEngine(bilm)
    if weight.device.type == "cuda":
        return cuda_engine(bilm, torch.float32) or PlainEngine(bilm)
    from elmokit.model.kernels.cpu_engine import TorchEngine

    return TorchEngine(bilm)


def cuda_engine(bilm: BiLM, dtype: torch.dtype) -> Engine | None:
    """Return the CUDA engine, or None if Triton is missing or the LSTMs have no projection."""
    if not bilm.config.lstm.has_projection:
        return None
    try:
        from elmokit.model.kernels.cuda_engine import CudaEngine
    except ImportError:  # Triton does not support this system
        return None
    return CudaEngine(bilm, dtype)
