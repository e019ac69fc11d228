"""The precisions of a model, and the implementation of a biLM for each.

device   "exact"                        "fast"
CPU      float32, packed weights        int8, with the fastest kernel of this machine
CUDA     float32                        bfloat16
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from elmokit.errors import check_choice
from elmokit.model.bilm import BiLM
from elmokit.model.engine import Engine, PlainEngine, cuda_engine, exact_engine

PRECISIONS: tuple[str, ...] = ("exact", "fast")


@contextmanager
def exact(device: torch.device) -> Iterator[None]:
    """Compute in plain float32 inside the block: no TF32, no bfloat16, no autocast.

    On a GPU, matrix products and cuDNN's convolutions may otherwise round their inputs to 10 bits.
    On a CPU, `set_float32_matmul_precision("medium")` allows bfloat16, which kills the process on
    virtual machines that advertise AMX but do not support it.
    """
    # Entering contexts that change nothing takes a tenth of the time of a short sentence.
    has_autocast = torch.is_autocast_enabled(device.type)
    autocast = torch.autocast(device.type, enabled=False) if has_autocast else nullcontext()
    cudnn = (
        torch.backends.cudnn.flags(
            enabled=torch.backends.cudnn.enabled, benchmark=False, allow_tf32=False
        )
        if device.type == "cuda"
        else nullcontext()
    )
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with autocast, cudnn:
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def engine_for(bilm: BiLM, precision: str = "exact") -> Engine:
    """Return the fastest implementation of a biLM on its device.

    Args:
        bilm: The reference modules.
        precision: "exact" or "fast".

    Raises:
        ConfigError: "fast" is not accurate enough for the model.
    """
    check_choice("precision", precision, PRECISIONS)
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
