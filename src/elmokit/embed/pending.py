"""Vectors that are being copied from the device to the host.

All vectors of a block of sentences go to one array, in the order of the tokens. A GPU fills it on
the device and copies it to the host while it reads the next block.
"""

from __future__ import annotations

import torch
from torch import Tensor

from elmokit.device import to_device
from elmokit.embed.blocks import Batch, Pending
from elmokit.embed.vectors import FloatArray


class PendingVectors(Pending):
    """The vectors of a block of sentences, as a tensor.

    Args:
        shape: (K, N, W).
        dtype: "float32" or "float16".
        device: The device on which they are computed.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: str, device: torch.device) -> None:
        self._values = torch.empty(shape, dtype=getattr(torch, dtype), device=device)
        self._range = torch.zeros(2)  # the smallest and the largest value, or NaN
        self._copied: torch.cuda.Event | None = None

    def put(self, layers: Tensor, batch: Batch) -> None:
        """Store the vectors of a batch, (K, n, W) in packed order."""
        device = self._values.device
        chosen = layers.index_select(1, to_device(batch.sources, device))
        self._values.index_copy_(1, to_device(batch.targets, device), chosen.to(self._values.dtype))

    def finish(self) -> None:
        """Start the copy to the host, after the last batch."""
        if self._values.numel():
            self._range = torch.stack(torch.aminmax(self._values))
        if self._values.device.type == "cuda":
            self._values = _to_host(self._values)
            self._range = _to_host(self._range)
            self._copied = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            self._copied.record()

    def array(self) -> FloatArray:
        """Wait for the vectors, and return them."""
        if self._copied is not None:
            self._copied.synchronize()
        array: FloatArray = self._values.numpy()
        return array

    @property
    def is_finite(self) -> bool:
        """Whether all values are finite in their number type."""
        return bool(self._range.isfinite().all())


def _to_host(values: Tensor) -> Tensor:
    """Start a copy to pinned memory, which a GPU fills while the host does something else."""
    pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return pinned.copy_(values, non_blocking=True)
