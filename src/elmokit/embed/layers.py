"""The layers of a frozen biLM for a dataset, precomputed or computed on demand.

`layer_cache.py` stores them between runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.embed.model import ElmoModel, StatePolicy
from elmokit.errors import ConfigError

# Layers are stored on a GPU if they need less than this fraction of its free memory.
_SHARE_OF_DEVICE = 0.25
_ROWS_AT_ONCE = 1 << 15

Texts = Sequence[Sequence[str]]


class Layers(Protocol):
    """The layers of a list of texts."""

    def padded(self, numbers: Sequence[int]) -> Tensor:
        """Return h_{k,j} of some texts, (L + 1, B, T, 2D) in float32; zero in the padding."""


class StoredLayers:
    """Precomputed layers, in memory, in a memory-mapped file or on a GPU.

    Args:
        values: h_{k,j} of all tokens in turn, (N, L + 1, 2D).
        lengths: Tokens in each distinct text.
        device: The device of the results.
        index: For each text, the index of its distinct text, if some texts are identical, such as
            the passage of several questions.
        resident: Keep them on the device. Default: if it is a GPU with enough free memory.
    """

    def __init__(
        self,
        values: NDArray[Any],
        lengths: Sequence[int],
        device: torch.device,
        *,
        index: Sequence[int] | None = None,
        resident: bool | None = None,
    ) -> None:
        own = slice(None) if index is None else np.array(index, dtype=np.int64)
        self._starts = np.cumsum([0, *lengths])[:-1].astype(np.int64)[own]
        self._lengths = np.array(lengths, dtype=np.int64)[own]
        self._device = device
        self._values = values
        self._on_device: Tensor | None = None
        if resident is None and device.type == "cuda":
            resident = values.nbytes < _SHARE_OF_DEVICE * torch.cuda.mem_get_info(device)[0]
        if resident:
            # The last row is zero, for padding.
            shape = (len(values) + 1, *values.shape[1:])
            dtype = torch.float16 if values.dtype == np.float16 else torch.float32
            copy = torch.zeros(shape, dtype=dtype, device=device)
            for first in range(0, len(values), _ROWS_AT_ONCE):
                rows = np.array(values[first : first + _ROWS_AT_ONCE])
                copy[first : first + len(rows)] = torch.from_numpy(rows).to(device)
            self._on_device = copy

    def padded(self, numbers: Sequence[int]) -> Tensor:
        """Return h_{k,j} of some texts, (L + 1, B, T, 2D) in float32; zero in the padding."""
        starts, lengths = self._starts[numbers], self._lengths[numbers]
        steps = np.arange(max(1, int(lengths.max(initial=0))))
        if self._on_device is not None:
            rows = np.where(steps < lengths[:, None], starts[:, None] + steps, len(self._values))
            layers = self._on_device[torch.from_numpy(rows).to(self._device)]  # (B, T, L + 1, 2D)
        else:
            shape = (len(numbers), len(steps), *self._values.shape[1:])
            table = np.zeros(shape, dtype=self._values.dtype)
            for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
                table[row, :length] = self._values[start : start + length]
            layers = torch.from_numpy(table).to(self._device)
        return layers.permute(2, 0, 1, 3).float()


class LiveLayers:
    """Layers that are computed on demand, rounded like stored ones."""

    def __init__(
        self, elmo: ElmoModel, texts: Texts, device: torch.device, *, state: str, storage: str
    ) -> None:
        self._elmo = elmo
        self._texts = texts
        self._device = device
        self._state = cast(StatePolicy, state)
        self._storage = storage

    def padded(self, numbers: Sequence[int]) -> Tensor:
        """Return h_{k,j} of some texts, (L + 1, B, T, 2D) in float32; zero in the padding."""
        texts, index = distinct_texts([self._texts[n] for n in numbers])
        arrays = self._elmo.compute(texts, self._state)
        values = as_stored(np.concatenate(arrays, axis=1), self._storage).transpose(1, 0, 2)
        lengths = [len(text) for text in texts]
        stored = StoredLayers(values, lengths, self._device, index=index, resident=False)
        return stored.padded(range(len(numbers)))


def distinct_texts(texts: Iterable[Sequence[str]]) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return the distinct texts, and the index of each text among them."""
    indices: dict[tuple[str, ...], int] = {}
    index = [indices.setdefault(tuple(text), len(indices)) for text in texts]
    return list(indices), index


def as_stored(layers: NDArray[np.float32], storage: str) -> NDArray[Any]:
    """Round layers to the storage type."""
    with np.errstate(over="ignore"):
        short = layers.astype(np.dtype(storage))
    if not np.isfinite(short).all():
        raise ConfigError(
            "The layers contain values that are too large for float16. Store them as float32: "
            "--set elmo.storage=float32"
        )
    return short
