"""Buffers for `FastStep`. The CPU fills them while the GPU computes the previous step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.train.step import StepConfig, draw_negatives

_ALIGNMENT = 16
_N_BLOCKS = 2

#: Shape and dtype of an array.
Field = tuple[tuple[int, ...], torch.dtype]


class Staging:
    """Named arrays that are filled on the CPU and copied to the GPU as a single block of memory.

    The block is in pinned memory, because copying from pageable memory would block the CPU. There
    are two such blocks, so that one can be filled while the other is being copied.

    Args:
        fields: Shape and dtype of each array.
        device: The device to copy to.

    Attributes:
        on_device: The arrays on the device, by name. Their addresses never change, as required by
            CUDA graphs.
    """

    def __init__(self, fields: Mapping[str, Field], device: torch.device) -> None:
        self._fields = dict(fields)
        size = sum(_aligned_bytes(*field) for field in self._fields.values())
        self._pinned = device.type == "cuda"
        self._on_device = torch.zeros(size, dtype=torch.uint8, device=device)
        self._on_host = [
            torch.zeros(size, dtype=torch.uint8, device="cpu", pin_memory=self._pinned)
            for _ in range(_N_BLOCKS)
        ]
        self._copied: list[Any] = [None] * _N_BLOCKS
        self._current = 0
        self.on_device: dict[str, Tensor] = self._views(self._on_device)

    def next(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to fill. Their initial contents are undefined."""
        self._current = (self._current + 1) % _N_BLOCKS
        if self._copied[self._current] is not None:
            self._copied[self._current].synchronize()
        views = self._views(self._on_host[self._current])
        return {name: view.numpy() for name, view in views.items()}

    def send(self) -> None:
        """Start copying the arrays returned by `next` to the device, on the current stream."""
        self._on_device.copy_(self._on_host[self._current], non_blocking=True)
        if self._pinned:
            self._copied[self._current] = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied[self._current].record()

    def _views(self, block: Tensor) -> dict[str, Tensor]:
        views = {}
        start = 0
        for name, (shape, dtype) in self._fields.items():
            end = start + math.prod(shape) * dtype.itemsize
            views[name] = block[start:end].view(dtype).view(shape)
            start += _aligned_bytes(shape, dtype)
        return views


def _aligned_bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    return -(-math.prod(shape) * dtype.itemsize // _ALIGNMENT) * _ALIGNMENT


class Negatives:
    """The negative samples of both directions.

    Samples depend only on the seed, the step number and the direction. Those of the next step can
    therefore be drawn during the current step, on a separate CUDA stream.

    Attributes:
        words: The samples of the last step passed to `load`, shape (2, K).
        time: `Sample.time` of both directions, shape (2,).
    """

    def __init__(self, config: StepConfig, n_words: int, device: torch.device) -> None:
        self._config, self._n_words, self._device = config, n_words, device
        n_samples = min(config.negatives or n_words, n_words)
        self.words = torch.zeros(2, n_samples, dtype=torch.int64, device=device)
        self.time = torch.zeros(2, device=device)
        self._next = (torch.zeros_like(self.words), torch.zeros_like(self.time))
        self._next_number: int | None = None  # the step number of `_next`
        self._stream: torch.cuda.Stream | None = None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def load(self, number: int) -> None:
        """Load the samples of step `number`, and start drawing those of the next step."""
        if self._stream is None:
            self._draw(number, self.words, self.time)
            return
        current_stream = torch.cuda.current_stream(self._device)
        if self._next_number != number:
            self._draw_next(number, current_stream)
        current_stream.wait_stream(self._stream)
        self.words.copy_(self._next[0])
        self.time.copy_(self._next[1])
        self._draw_next(number + 1, current_stream)

    def _draw_next(self, number: int, current_stream: torch.cuda.Stream) -> None:
        assert self._stream is not None
        self._stream.wait_stream(current_stream)  # until the previous samples have been copied
        with torch.cuda.stream(self._stream):
            self._draw(number, *self._next)
        self._next_number = number

    def _draw(self, number: int, words: Tensor, time: Tensor) -> None:
        for direction in (0, 1):
            sample = draw_negatives(self._config, self._n_words, number, direction, self._device)
            words[direction].copy_(sample.words)
            time[direction].copy_(sample.time)
