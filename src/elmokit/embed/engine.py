"""What runs a biLM at inference, by device and precision.

device   "exact"                        "fast"
CPU      float32, packed weights        int8, by the best product this machine has
CUDA     float32                        bfloat16
"""

from __future__ import annotations

import torch

from elmokit.embed.precision import check_precision
from elmokit.model.bilm import BiLM
from elmokit.model.engine import Engine, PlainEngine, cuda_engine, exact_engine


def engine_for(bilm: BiLM, precision: str = "exact") -> Engine:
    """Choose what runs a biLM on the device it is on.

    Args:
        bilm: The reference modules.
        precision: "exact" or "fast".

    Raises:
        ConfigError: The model loses too much in "fast".
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
