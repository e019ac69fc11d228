"""What runs a biLM at inference: the plain modules, or the fastest twin for the device.

    device   "exact"                        "fast"
    CPU      float32, packed weights        int8, by the best product this machine has
    CUDA     float32                        bfloat16

All engines give what the plain modules of `elmokit.model` give, within their precision.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from elmokit.embed.precision import check_precision
from elmokit.model.bilm import BiLM
from elmokit.model.charcnn import CharacterEncoder
from elmokit.model.lexicon_encoder import LexiconEncoder
from elmokit.model.lstm import LstmState
from elmokit.model.packing import Packing
from elmokit.model.trimming import trimmed_blocks

_ROWS = 512


class Engine(Protocol):
    """A biLM that reads."""

    def encode(self, ids: Tensor) -> Tensor:
        """Return x of distinct tokens, on the engine's device.

        A token's x does not depend on those beside it.

        Args:
            ids: Character ids (n, C) or word ids (n,), on the CPU.

        Returns:
            Shape (n, D).
        """

    def contextualize(
        self, x: Tensor, packing: Packing, state: LstmState | None = None
    ) -> tuple[Tensor, LstmState]:
        """Run both language models, as `BiLM.contextualize` does."""


class PlainEngine:
    """The plain modules, with words encoded in blocks of fixed shapes."""

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
        self, x: Tensor, packing: Packing, state: LstmState | None = None
    ) -> tuple[Tensor, LstmState]:
        """Run both language models, as `BiLM.contextualize` does."""
        return self._bilm.contextualize(x, packing, state)


def engine_for(bilm: BiLM, device: torch.device, precision: str = "exact") -> Engine:
    """Choose what runs a biLM.

    Args:
        bilm: The plain modules, on `device`.
        device: Where they are.
        precision: "exact" or "fast".

    Raises:
        ConfigError: The model loses too much in "fast".
    """
    check_precision(precision)
    if device.type == "cuda":
        return _cuda_engine(bilm, precision)
    if next(bilm.parameters()).dtype != torch.float32:
        return PlainEngine(bilm)
    if precision == "fast":
        from elmokit.embed.fast import fast_reader

        return fast_reader(bilm)
    from elmokit.model.kernels.cpu_exact import exact_reader

    return exact_reader(bilm)


def _cuda_engine(bilm: BiLM, precision: str) -> Engine:
    try:
        from elmokit.model.kernels.cuda_reader import CudaReader
    except ImportError:  # there is no Triton for this system
        return PlainEngine(bilm)
    if not bilm.config.lstm.has_projection:
        return PlainEngine(bilm)
    if precision == "exact":
        return CudaReader(bilm)
    from elmokit.embed.fast import check_model

    reader = CudaReader(bilm, torch.bfloat16)
    check_model(bilm, reader, "bfloat16")
    return reader
