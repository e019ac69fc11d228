"""How many threads compute in this process: torch and onnxruntime are told in two ways."""

from __future__ import annotations

import os

from elmokit.embed.loading import is_onnx

_VARIABLE = "OMP_NUM_THREADS"


def threads_of(model: str | None) -> int:
    """Return how many threads a model uses that is loaded in this process.

    Args:
        model: As for `elmokit.load`.
    """
    if not is_onnx(model):
        import torch

        return torch.get_num_threads()
    told = onnx_threads()
    if told is not None:
        return told
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_threads(n: int, model: str | None) -> None:
    """Let a model use so many threads that is loaded after this, in a process of its own."""
    if not is_onnx(model):
        import torch

        torch.set_num_threads(n)
        return
    os.environ[_VARIABLE] = str(n)


def onnx_threads() -> int | None:
    """Return how many threads onnxruntime is to use, as torch would; None if nobody has said."""
    told = os.environ.get(_VARIABLE, "")
    return int(told) if told.isdecimal() and int(told) else None
