"""Select the implementation of a biLM for inference, by device and precision.

device   "exact"                        "fast"
CPU      float32, packed weights        int8, with the fastest kernel of this machine
CUDA     float32                        bfloat16
"""

from __future__ import annotations

import torch

from elmokit.embed.precision import check_precision
from elmokit.model.bilm import BiLM
from elmokit.model.engine import Engine, PlainEngine, cuda_engine, exact_engine


def engine_for(bilm: BiLM, precision: str = "exact") -> Engine:
    """Return the fastest implementation of a biLM on its device.

    Args:
        bilm: The reference modules.
        precision: "exact" or "fast".

    Raises:
        ConfigError: "fast" is not accurate enough for the model.
    """
    check_precision(precision)
    weight = next(bilm.parameters())
    if precision == "exact" or weight.dtype != torch.float32:
        return exact_engine(bilm)
    from elmokit.embed.fast import check_model, fast_reader

    if weight.device.type != "cuda":
        return fast_reader(bilm)
    engine = cuda_engine(bilm, torch.bfloat16)
    if engine is None:
        return PlainEngine(bilm)
    check_model(bilm, engine, "bfloat16")
    return engine
