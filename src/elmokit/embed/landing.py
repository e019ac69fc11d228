"""Vectors on their way from the device to the user.

A GPU is given the next batch before the vectors of this one are waited for: while it reads, they
are copied to the host and cut into sentences.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.embed.vectors import FloatArray


class Landing:
    """The layers of one batch.

    Args:
        layers: h_{k,j} in packed order, shape (L + 1, N, 2D).
        places: For each sentence the places of its tokens in that order.
    """

    def __init__(self, layers: Tensor, places: Sequence[NDArray[np.int64]]) -> None:
        self._places = places
        self._on_way: torch.cuda.Event | None = None
        if layers.device.type == "cuda":
            # Put in order there, where it costs nothing; pinned memory is what a GPU can write to
            # while the host does something else.
            order = to_device(np.concatenate([*places, np.empty(0, np.int64)]), layers.device)
            ordered = layers.index_select(1, order)
            self._layers = torch.empty(ordered.shape, device="cpu", pin_memory=True)
            self._layers.copy_(ordered, non_blocking=True)
            self._on_way = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._on_way.record()
        else:
            self._layers = layers

    def arrays(self) -> list[FloatArray]:
        """Wait for the vectors, and return (L + 1, T, 2D) for each sentence."""
        if self._on_way is None:
            found = self._layers.numpy()
            return [np.take(found, place, axis=1) for place in self._places]
        self._on_way.synchronize()
        ends = np.cumsum([len(place) for place in self._places])
        found = self._layers.numpy()
        return [found[:, z - len(p) : z].copy() for p, z in zip(self._places, ends, strict=True)]


def to_device(array: NDArray[np.int64], device: torch.device) -> Tensor:
    """Copy an index to a device without waiting for what the device is doing."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
