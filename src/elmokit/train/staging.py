"""The inputs of a recorded step: one block of memory, copied to the device at once.

Copies from pageable memory block the host, copies from pinned memory do not. The host therefore
writes into one of two pinned blocks while the other may still be copied.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_ALIGNED = 16
_BLOCKS = 2

#: Shape and dtype of an array.
Field = tuple[tuple[int, ...], torch.dtype]


class Staging:
    """Named arrays that are filled on the host and read on the device.

    Args:
        fields: Shape and dtype of each array.
        device: The device.

    Attributes:
        on_device: The arrays on the device, by name, at fixed addresses for CUDA graphs.
    """

    def __init__(self, fields: Mapping[str, Field], device: torch.device) -> None:
        self._fields = dict(fields)
        size = 0
        self._starts: dict[str, int] = {}
        for name, (shape, dtype) in self._fields.items():
            self._starts[name] = size
            n = int(np.prod(shape)) * dtype.itemsize
            size += -(-n // _ALIGNED) * _ALIGNED
        self._pinned = device.type == "cuda"
        self._there = torch.zeros(size, dtype=torch.uint8, device=device)
        self._here = [
            torch.zeros(size, dtype=torch.uint8, device="cpu", pin_memory=self._pinned)
            for _ in range(_BLOCKS)
        ]
        self._copied: list[Any] = [None] * _BLOCKS
        self._turn = 0
        self.on_device: dict[str, Tensor] = self._views(self._there)

    def next(self) -> dict[str, NDArray[Any]]:
        """Return arrays to write to; they must be overwritten completely."""
        self._turn = (self._turn + 1) % _BLOCKS
        if self._copied[self._turn] is not None:
            self._copied[self._turn].synchronize()
        return {name: view.numpy() for name, view in self._views(self._here[self._turn]).items()}

    def send(self) -> None:
        """Copy the arrays that `next` returned to the device, on the current stream."""
        self._there.copy_(self._here[self._turn], non_blocking=True)
        if self._pinned:
            self._copied[self._turn] = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied[self._turn].record()

    def _views(self, block: Tensor) -> dict[str, Tensor]:
        views = {}
        for name, (shape, dtype) in self._fields.items():
            start, n = self._starts[name], int(np.prod(shape))
            views[name] = block[start : start + n * dtype.itemsize].view(dtype).view(shape)
        return views
