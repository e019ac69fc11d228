"""Compute -log p of every token of a text with both language models, in bounded memory.

Let t_i be the tokens of a text, including the `</S>` of each sentence, and p_i the token before
t_i, or `<S>` if t_i begins a sentence. The forward LM reads p_i and predicts t_i. The backward LM
reads t_i and predicts p_i. A direction never predicts the first token that it reads.

Both directions process segments of several texts at once. The outputs of many positions are
collected, and the softmax is computed for all of them together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.config import LstmConfig
from elmokit.model.engine import Engine
from elmokit.model.lstm import LstmState
from elmokit.model.packing import Packing, windows

# Number of texts to process in parallel, and number of tokens per call.
_ROWS, _ROWS_ON_GPU = 128, 1024
_SEGMENT_TOKENS, _SEGMENT_TOKENS_ON_GPU = 8192, 65536
# Limits on the number of steps per call.
_MIN_STEPS, _MAX_STEPS = 64, 512
# Approximate number of tokens in a window. The distinct words of a window are encoded together.
_WINDOW_TOKENS = 1 << 18
# Number of positions to collect before the softmax is computed.
_POSITIONS = 4096


# Outputs h, their targets, the direction, and the positions.
_Pending = tuple[Tensor, Tensor, int, NDArray[np.int64]]


class Head(Protocol):
    """Computes losses from the top layer: `LMHead`, or a faster implementation of it."""

    def losses(self, h: Tensor, targets: Tensor) -> Tensor:
        """Return -log p of each target: h (n, D), targets (n,) -> (n,) in float64."""


class TextTypes(NamedTuple):
    """The types (distinct words) of a text, which are identified by integer ids.

    Attributes:
        encode: Computes x_k of types, (n,) -> (n, D).
        words: Converts types to word ids in the vocabulary of the head, (n,) -> (n,).
        begin: The type `<S>`.
        end: The type `</S>`.
        unknown: The word id of `<UNK>` in the vocabulary of the head.
    """

    encode: Callable[[NDArray[np.int64]], Tensor]
    words: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    begin: int
    end: int
    unknown: int


class Losses(NamedTuple):
    """-log p of every target of a text, in text order.

    At the positions of a sentence `w1 .. wn </S>`, the losses of the forward LM are those of
    `w1 .. wn </S>`, and the losses of the backward LM are those of `<S> w1 .. wn`.

    Attributes:
        values: The losses of the forward and the backward LM, shape (2, length of the text).
        unknown: Whether each target is `<UNK>`, same shape.
    """

    values: NDArray[np.float64]
    unknown: NDArray[np.bool_]


class Scorer:
    """Computes the losses of both language models of a biLM.

    Args:
        engine: The implementation of the biLM.
        config: The configuration of the LSTMs.
        head: The LM head.
        device: The device of the engine and the head.
    """

    def __init__(
        self, engine: Engine, config: LstmConfig, head: Head, device: torch.device
    ) -> None:
        self.engine, self._config, self._head, self._device = engine, config, head, device
        on_gpu = device.type == "cuda"
        self._rows = _ROWS_ON_GPU if on_gpu else _ROWS
        self._segment_tokens = _SEGMENT_TOKENS_ON_GPU if on_gpu else _SEGMENT_TOKENS

    def losses(
        self,
        types: TextTypes,
        texts: Sequence[NDArray[np.integer]],
        start: LstmState | None = None,
    ) -> Iterator[tuple[int, Losses]]:
        """Compute the losses of all targets.

        Args:
            types: The types of the texts.
            texts: For each text, the types of its tokens, with `</S>` after each sentence. The
                state is carried over from sentence to sentence within a text.
            start: The initial state, a single row that is used for all texts. Default: the zero
                state.

        Yields:
            The index of each text and its losses. The longest texts come first.
        """
        # Process texts of similar length together.
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        for window in windows(order, lambda i: len(texts[i]), _WINDOW_TOKENS):
            arrays = [np.asarray(texts[i], dtype=np.int64) for i in window]
            # Each distinct word of the window is encoded once.
            distinct, inverse = np.unique(
                np.concatenate([*arrays, [types.begin, types.end]]), return_inverse=True
            )
            begin, end = int(inverse[-2]), int(inverse[-1])
            with torch.inference_mode():
                x = types.encode(distinct)
                words = types.words(distinct)
                bounds = np.cumsum([0, *map(len, arrays)])
                for first in range(0, len(window), self._rows):
                    members = window[first : first + self._rows]
                    ends = bounds[first : first + len(members) + 1]
                    group = _Group(inverse[ends[0] : ends[-1]], ends - ends[0], begin, end)
                    values = self._score(group, x, words, start)
                    unknown = words[group.targets] == types.unknown
                    for i, begin_i, end_i in zip(
                        members, group.bounds, group.bounds[1:], strict=False
                    ):
                        yield i, Losses(values[:, begin_i:end_i], unknown[:, begin_i:end_i])

    def _score(
        self,
        group: _Group,
        x: Tensor,
        words: NDArray[np.int64],
        start: LstmState | None,
    ) -> NDArray[np.float64]:
        """Return the losses of a group of texts, which are processed in parallel."""
        rows, d = len(group.lengths), self._config.projection_dim
        state = LstmState.zeros(self._config, rows, like=x)
        if start is not None:
            state = LstmState(*(tensor.to(self._device) for tensor in start)).expand(rows)
        steps = min(_MAX_STEPS, max(_MIN_STEPS, self._segment_tokens // rows))
        values = np.empty(group.targets.shape)
        pending: list[_Pending] = []
        for first in range(0, int(group.lengths.max()), steps):
            packing = Packing.of(np.clip(group.lengths - first, 0, steps))
            forward, backward = group.positions(packing, first)
            layers, state = self.engine.contextualize(
                x[self._to_device(group.inputs[0, forward])],
                packing,
                state,
                x[self._to_device(group.inputs[1, backward])],
            )
            for direction, positions in enumerate((forward, backward)):
                h = layers[-1][:, direction * d : (direction + 1) * d]
                targets = self._to_device(words[group.targets[direction, positions]])
                pending.append((h, targets, direction, positions))
                if sum(len(positions) for *_, positions in pending) >= _POSITIONS:
                    self._store_losses(pending, values)
        if pending:
            self._store_losses(pending, values)
        return values

    def _store_losses(self, pending: list[_Pending], values: NDArray[np.float64]) -> None:
        """Compute the losses of all pending positions together, and clear the list."""
        h, targets, directions, positions = zip(*pending, strict=True)
        losses = self._head.losses(torch.cat(h), torch.cat(targets)).cpu().numpy()
        parts = np.split(losses, np.cumsum([len(part) for part in positions])[:-1])
        for direction, part, part_losses in zip(directions, positions, parts, strict=True):
            values[direction, part] = part_losses
        pending.clear()

    def _to_device(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)


class _Group:
    """Concatenated texts that are processed in parallel.

    Attributes:
        bounds: The start of each text, and the end of the last text.
        lengths: Number of tokens in each text.
        inputs: The input of the forward and the backward LM at each position, shape (2, N).
        targets: The target of the forward and the backward LM at each position, shape (2, N).
    """

    def __init__(
        self, tokens: NDArray[np.int64], bounds: NDArray[np.int64], begin: int, end: int
    ) -> None:
        previous = np.empty_like(tokens)
        previous[1:] = tokens[:-1]
        previous[previous == end] = begin
        previous[bounds[:-1]] = begin
        self.bounds, self.lengths = bounds, np.diff(bounds)
        self.inputs = np.stack([previous, tokens])
        self.targets = np.stack([tokens, previous])

    def positions(
        self, packing: Packing, first: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the positions of both directions for a packing that begins at step `first`.

        The forward LM starts at the beginning of each text, and the backward LM at the end.
        """
        rows = packing.rows
        forward = self.bounds[rows] + first + packing.steps
        backward = self.bounds[rows + 1] - first - packing.lengths[rows] + packing.steps
        return forward, backward
