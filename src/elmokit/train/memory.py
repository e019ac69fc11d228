"""Too little memory: which batch would fit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from elmokit.errors import ElmoError
from elmokit.train.config import RunConfig

_GRAIN = 16


class OutOfMemoryError(ElmoError):
    """The device has not enough memory for the batch."""


def bytes_per_row(config: RunConfig) -> int:
    """Estimate the device memory that one more row of a batch takes in the fast step.

    The buffers of the wavefront, and the logits of the sampled softmax with a copy for its
    products. On an H200 one row of the original shape took 6.3 MB, and 6.2 MB are estimated.
    """
    lstm, steps = config.model.lstm, config.step.steps
    h, d = lstm.dim, lstm.projection_dim
    stacks, slots = 2 * lstm.n_layers, steps + lstm.n_layers
    wave = stacks * slots * (2 * 2 * 2 * d + 2 * 4 * h + 4 * h + 2 * h + 2 * d)
    ends = stacks * (2 * h + 4 * h) + 2 * 2 * 2 * steps * d
    softmax = 2 * steps * config.step.negatives * 2
    return wave + ends + softmax


@contextmanager
def told_of_memory(config: RunConfig, device: torch.device) -> Iterator[None]:
    """Turn a device that is out of memory into an error that says which batch would fit."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        # Out of the CPU's memory, torch raises a RuntimeError and numpy a MemoryError.
        known = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not known and "allocate memory" not in str(error):
            raise
        reason = (str(error).splitlines() or [""])[0]
        if device.type != "cuda":
            raise OutOfMemoryError(
                f"{config.step.rows} rows x {config.step.steps} steps do not fit into memory: "
                f"{reason} Use fewer rows (--set step.rows=...) or a smaller preset."
            ) from error
        free, total = torch.cuda.mem_get_info(device)
        usable = free + torch.cuda.memory_reserved(device)
        raise OutOfMemoryError(_told(config, total, usable, reason)) from error


def _told(config: RunConfig, total: int, usable: int, reason: str) -> str:
    rows, per_row = config.step.rows, bytes_per_row(config)
    fits = int((usable - _fixed_bytes(config)) * 0.9 / per_row) // _GRAIN * _GRAIN
    fits = min(fits, rows - _GRAIN)  # it did not fit, whatever the estimate says
    advice = (
        f"About {fits} rows should fit: --set step.rows={fits}."
        if fits >= _GRAIN
        else "Not even a small batch would fit; choose a smaller preset."
    )
    return (
        f"{rows} rows x {config.step.steps} steps do not fit into this device's memory "
        f"({usable / 2**30:.1f} of {total / 2**30:.1f} GiB can be used): {reason} {advice} Nothing "
        "is lost: what was checkpointed goes on with --resume."
    )


def _fixed_bytes(config: RunConfig) -> int:
    """Weights, gradients and averages in float32, and the weights once more in bfloat16."""
    lstm, cnn = config.model.lstm, config.model.char_cnn
    h, d = lstm.dim, lstm.projection_dim
    n = 2 * lstm.n_layers * (2 * d * 4 * h + h * d)
    if cnn is not None:
        n += 2 * cnn.n_highway * cnn.n_filters**2 + cnn.n_filters * d
    return n * (4 * 4 + 2)
