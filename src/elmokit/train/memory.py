"""Explain out-of-memory errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from elmokit.errors import ElmoError
from elmokit.train.config import RunConfig


class OutOfMemoryError(ElmoError):
    """The device does not have enough memory for a batch."""


@contextmanager
def explain_out_of_memory(config: RunConfig) -> Iterator[None]:
    """Convert out-of-memory errors into an error with advice."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        # For CPU memory, torch raises a RuntimeError and numpy a MemoryError.
        known = isinstance(error, torch.OutOfMemoryError | MemoryError)
        if not known and "allocate memory" not in str(error):
            raise
        reason = (str(error).splitlines() or [""])[0]
        raise OutOfMemoryError(
            f"{config.step.rows} rows x {config.step.steps} steps do not fit into memory: {reason} "
            f"Use fewer rows (--set step.rows={max(1, config.step.rows // 2)}) or a smaller "
            "preset. Checkpoints are kept: continue with --resume."
        ) from error
