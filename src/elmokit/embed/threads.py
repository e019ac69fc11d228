"""Get and set the number of threads of torch and onnxruntime."""

from __future__ import annotations

import os

from elmokit.embed.loading import is_onnx
from elmokit.parallel import available_cores

_VARIABLE = "OMP_NUM_THREADS"


def threads_of(model: str | None) -> int:
    """Return the number of threads that a model in this process uses.

    Args:
        model: As for `elmokit.load`.
    """
    if not is_onnx(model):
        import torch

        return torch.get_num_threads()
    return onnx_threads() or available_cores()


def use_threads(n: int, model: str | None) -> None:
    """Set the number of threads of a model that this process loads later."""
    if not is_onnx(model):
        import torch

        torch.set_num_threads(n)
        return
    os.environ[_VARIABLE] = str(n)


def onnx_threads() -> int | None:
    """Return the number of threads set for onnxruntime, as for torch; None if it is not set."""
    value = os.environ.get(_VARIABLE, "")
    return int(value) if value.isdecimal() and int(value) else None
