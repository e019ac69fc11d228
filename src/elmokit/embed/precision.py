"""What "exact" means on each device: float32 in every product, whatever the process has set."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from elmokit.errors import ConfigError, nearest

PRECISIONS: tuple[str, ...] = ("exact", "fast")


def check_precision(name: str) -> None:
    """Raise if there is no such precision."""
    if name not in PRECISIONS:
        raise ConfigError(
            f"No precision '{name}'.{nearest(name, PRECISIONS)} There are: {', '.join(PRECISIONS)}."
        )


@contextmanager
def exact(device: torch.device) -> Iterator[None]:
    """Compute in plain float32 inside: no TF32, no bfloat16, no autocast.

    On a GPU both matrix products and cuDNN's convolutions would otherwise round their inputs to 10
    bits; on a CPU `set_float32_matmul_precision("medium")` asks for bfloat16, which even kills the
    process on virtual machines that advertise AMX without having it.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with (
            torch.autocast(device.type, enabled=False),
            torch.backends.cudnn.flags(
                enabled=torch.backends.cudnn.enabled, benchmark=False, allow_tf32=False
            ),
        ):
            yield
    finally:
        torch.set_float32_matmul_precision(before)
