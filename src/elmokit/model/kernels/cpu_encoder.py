"""The token encoder on a CPU: all filters as one matrix product over the windows of a word.

Each window of `max_width` characters is a row, and narrower filters are padded with zeros. This is
exact if a word is followed by `max_width` padding characters: the windows that are left out contain
only padding, like one that is included. Words that are too long for this use the reference
convolutions.

The reference implementation is `elmokit.model.charcnn.CharacterEncoder`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.model.charcnn import CharacterEncoder, Highway, WordEncoder
from elmokit.model.kernels.cpu_linear import PackedLinear
from elmokit.model.lexicon_encoder import LexiconEncoder
from elmokit.model.trimming import filled_blocks, trimmed_blocks

_ROWS = 32


def cpu_encoder(
    encoder: CharacterEncoder | LexiconEncoder | WordEncoder,
) -> Callable[[Tensor], Tensor]:
    """Return the kernel for a token encoder; a word table does not need one."""
    if isinstance(encoder, LexiconEncoder):
        return encoder.in_blocks
    return CpuEncoder(encoder) if isinstance(encoder, CharacterEncoder) else encoder


class CpuEncoder:
    """Computes x of distinct words, in blocks of fixed shapes (see `model/trimming.py`)."""

    def __init__(self, encoder: CharacterEncoder) -> None:
        self._encoder = encoder
        config = encoder.config
        self._width = config.max_width
        self._activation = torch.relu_ if config.activation == "relu" else torch.tanh_
        self._table = torch.cat(
            [encoder.char_embed.new_zeros(1, config.embedding_dim), encoder.char_embed]
        )
        weights, biases = [], []
        for conv in encoder.convolutions:
            assert isinstance(conv, torch.nn.Conv1d)
            assert conv.bias is not None
            padded = F.pad(conv.weight, (0, self._width - conv.weight.shape[2]))  # (n, e, width)
            weights.append(padded.transpose(1, 2).flatten(1))
            biases.append(conv.bias)
        self._filters = PackedLinear(torch.cat(weights))
        self._bias = torch.cat(biases)
        self._highways: list[tuple[PackedLinear, PackedLinear]] = []
        for highway in encoder.highways:
            assert isinstance(highway, Highway)
            carry, transform = highway.carry, highway.transform
            self._highways.append(
                (
                    PackedLinear(carry.weight, carry.bias),
                    PackedLinear(transform.weight, transform.bias),
                )
            )
        self._projection: PackedLinear | None = None
        if encoder.projection is not None:
            self._projection = PackedLinear(encoder.projection.weight, encoder.projection.bias)

    def __call__(self, ids: Tensor) -> Tensor:
        """Encode words.

        Shape:
            ids (n, C) -> (n, D)
        """
        rows = ids.numpy()
        pooled = self._table.new_empty(len(rows), len(self._bias))
        for block, trimmed in trimmed_blocks(rows, self._width, _ROWS):
            pooled[torch.from_numpy(block)] = self._pool(torch.from_numpy(trimmed))[: len(block)]
        pooled += self._bias
        self._activation(pooled)
        # The highways do not depend on the word length: all words go through them together.
        parts = [
            self._after_pooling(pooled[torch.from_numpy(filled)])[: len(block)]
            for block, filled in filled_blocks(np.arange(len(rows)), _ROWS)
        ]
        return torch.cat(parts) if parts else pooled.new_empty(0, self._out_dim())

    def _pool(self, ids: Tensor) -> Tensor:
        """Return the maximum of each filter over the windows of the words, without its bias.

        Shape:
            ids (rows, C) -> (rows, F)
        """
        n, columns = ids.shape
        characters = F.embedding(ids, self._table)  # (rows, C, e)
        if columns >= self._encoder.config.max_characters_per_token:
            turned = characters.transpose(1, 2)
            convs = [
                conv for conv in self._encoder.convolutions if isinstance(conv, torch.nn.Conv1d)
            ]
            return torch.cat([F.conv1d(turned, conv.weight).amax(dim=2) for conv in convs], dim=1)
        e = characters.shape[2]
        windows = columns - self._width + 1
        size, stride = (n, windows, self._width * e), (columns * e, e, 1)
        unfolded = characters.as_strided(size, stride).reshape(n * windows, -1)
        return self._filters(unfolded).view(n, windows, -1).amax(dim=1)

    def _after_pooling(self, x: Tensor) -> Tensor:
        """Run the highways and the projection: (rows, F) -> (rows, D)."""
        for carry, transform in self._highways:
            x = torch.lerp(x, transform(x).relu_(), carry(x).sigmoid_())
        return x if self._projection is None else self._projection(x)

    def _out_dim(self) -> int:
        projection = self._encoder.projection
        return len(self._bias) if projection is None else projection.out_features
