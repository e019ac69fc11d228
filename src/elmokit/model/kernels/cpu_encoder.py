"""The token encoder for CPUs. All filters are computed as one matrix product over windows.

Each window of `max_width` characters is a row, and narrower filters are padded with zeros. The
result is exact if each word is followed by `max_width` padding characters: the omitted windows
contain only padding, and so does one of the windows that are included. Words with less padding are
encoded with the reference convolutions.

The reference implementation is `elmokit.model.charcnn.CharacterEncoder`.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.model.charcnn import CharacterEncoder, Highway
from elmokit.model.engine import encode_in_blocks
from elmokit.model.kernels.cpu_linear import PackedLinear
from elmokit.model.trimming import padded_blocks

_ROWS = 32


class CpuEncoder:
    """Encodes distinct words in blocks of fixed shapes (see `model/trimming.py`)."""

    def __init__(self, encoder: CharacterEncoder) -> None:
        self._encoder = encoder
        config = encoder.config
        self._width = config.max_width
        self._activation = torch.relu_ if config.activation == "relu" else torch.tanh_
        self._table = encoder.table()
        filters, self._bias = encoder.filter_matrix()
        self._filters = PackedLinear(filters)
        self._highways = [
            (_pack(highway.carry), _pack(highway.transform))
            for highway in encoder.highways
            if isinstance(highway, Highway)
        ]
        self._projection = None if encoder.projection is None else _pack(encoder.projection)

    def __call__(self, ids: Tensor) -> Tensor:
        """Encode words.

        Shape:
            ids (n, C) -> (n, D)
        """
        pooled = self._table.new_empty(len(ids), len(self._bias))
        encode_in_blocks(self._pool, ids, pooled, self._width, _ROWS)
        pooled += self._bias
        self._activation(pooled)
        # The highway layers do not depend on word length, so process words of all lengths together.
        outputs = [
            self._after_pooling(pooled[torch.from_numpy(padded)])[: len(block)]
            for block, padded in padded_blocks(np.arange(len(ids)), _ROWS)
        ]
        return torch.cat(outputs) if outputs else self._encoder(ids)

    def _pool(self, ids: Tensor) -> Tensor:
        """Return the maximum of each filter over the windows of each word, without the bias.

        Shape:
            ids (rows, C) -> (rows, F)
        """
        n, columns = ids.shape
        characters = F.embedding(ids, self._table)  # (rows, C, e)
        if columns >= self._encoder.config.max_characters_per_token:
            x = characters.transpose(1, 2)
            convs = [
                conv for conv in self._encoder.convolutions if isinstance(conv, torch.nn.Conv1d)
            ]
            return torch.cat([F.conv1d(x, conv.weight).amax(dim=2) for conv in convs], dim=1)
        e = characters.shape[2]
        windows = columns - self._width + 1
        size, stride = (n, windows, self._width * e), (columns * e, e, 1)
        unfolded = characters.as_strided(size, stride).reshape(n * windows, -1)
        return self._filters(unfolded).view(n, windows, -1).amax(dim=1)

    def _after_pooling(self, x: Tensor) -> Tensor:
        """Apply the highway layers and the projection: (rows, F) -> (rows, D)."""
        for carry, transform in self._highways:
            x = torch.lerp(x, transform(x).relu_(), carry(x).sigmoid_())
        return x if self._projection is None else self._projection(x)


def _pack(linear: torch.nn.Linear) -> PackedLinear:
    return PackedLinear(linear.weight, linear.bias)
