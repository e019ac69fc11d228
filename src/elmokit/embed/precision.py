"""The precisions of a model, and the engine for each device and precision.

device   "exact"                        "fast"
CPU      float32, packed weights        int8, with the fastest kernel for this machine
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
def exact_products(device: torch.device) -> Iterator[None]:
    """Compute in float32 in this context, without TF32, bfloat16 or autocast.

    Otherwise, matrix products and cuDNN's convolutions on a GPU may round their inputs to TF32.
    On a CPU, `set_float32_matmul_precision("medium")` would allow bfloat16, which kills the process
    on virtual machines that advertise AMX but do not support it.
    """
    # To save time for calls with a single short sentence, enter only the contexts that are needed.
    has_autocast = torch.is_autocast_enabled(device.type)
    autocast = torch.autocast(device.type, enabled=False) if has_autocast else nullcontext()
    cudnn = (
        torch.backends.cudnn.flags(
            enabled=torch.backends.cudnn.enabled, benchmark=False, allow_tf32=False
        )
        if device.type == "cuda"
        else nullcontext()
    )
    previous = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with autocast, cudnn:
            yield
    finally:
        torch.set_float32_matmul_precision(previous)


def engine_for(bilm: BiLM, precision: str = "exact") -> Engine:
    """Return the fastest engine for a biLM on its device.

    Args:
        bilm: The reference implementation.
        precision: "exact" or "fast".

    Raises:
        ConfigError: "fast" is not accurate enough for the model.
    """
    check_choice("precision", precision, PRECISIONS)
    weight = next(bilm.parameters())
    if precision == "exact" or weight.dtype != torch.float32:
        return exact_engine(bilm)
    from elmokit.embed.fast import check_accuracy, fast_engine

    if weight.device.type != "cuda":
        return fast_engine(bilm)
    engine = cuda_engine(bilm, torch.bfloat16)
    if engine is None:
        return PlainEngine(bilm)
    check_accuracy(bilm, engine, "bfloat16")
    return engine
