"""Precisions, and float32 arithmetic regardless of the settings of the process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch

from elmokit.errors import ConfigError, nearest

PRECISIONS: tuple[str, ...] = ("exact", "fast")


def check_precision(name: str) -> None:
    """Raise an error for an unknown precision."""
    if name not in PRECISIONS:
        raise ConfigError(
            f"Invalid precision '{name}'.{nearest(name, PRECISIONS)} Expected one of: "
            f"{', '.join(PRECISIONS)}."
        )


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
