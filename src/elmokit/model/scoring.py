"""Score running text with both language models: -log p of every token, in bounded memory.

For text `w1 .. wn </S>`, whose tokens are r_i, let p_i be the token before r_i, with `<S>` in place
of `</S>` and at the beginning. The forward LM reads p_i and predicts r_i; the backward LM reads r_i
and predicts p_i. The first symbol of a direction is never predicted.

Both directions process segments of several texts at once. The states of many positions are
collected before the softmax is computed over all of them.
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

# Texts that are read in parallel, and tokens per call.
_ROWS, _ROWS_ON_GPU = 128, 1024
_SEGMENT_TOKENS, _SEGMENT_TOKENS_ON_GPU = 8192, 65536
# Steps in one call: on a GPU a call of at most 512 steps over one text replays a CUDA graph.
_MIN_STEPS, _MAX_STEPS = 64, 512
# Tokens whose distinct words are encoded together.
_WINDOW_TOKENS = 1 << 18
# Positions whose states are collected for one softmax.
_POSITIONS = 4096


class Head(Protocol):
    """Computes losses from states: `LMHead`, or a faster implementation of it."""

    def losses(self, h: Tensor, targets: Tensor) -> Tensor:
        """Return -log p of each target: h (n, D), targets (n,) -> (n,) in float64."""


class TextTypes(NamedTuple):
    """The distinct words ("types") of a text, by their numbers.

    Attributes:
        encode: From types to x_k, (n,) -> (n, D).
        words: From types to words of the head, (n,) -> (n,).
        begin: The type `<S>`.
        end: The type `</S>`.
        unknown: The head's word `<UNK>`.
    """

    encode: Callable[[NDArray[np.int64]], Tensor]
    words: Callable[[NDArray[np.int64]], NDArray[np.int64]]
    begin: int
    end: int
    unknown: int


class Losses(NamedTuple):
    """-log p of every target of a text, in the order of the text.

    For a sentence `w1 .. wn </S>` at positions a .. a + n of its text, the forward LM's losses
    there are those of `w1 .. wn </S>` and the backward LM's those of `<S> w1 .. wn`.

    Attributes:
        values: Forward and backward, shape (2, length of the text).
        unknown: Where the target was `<UNK>`, same shape.
    """

    values: NDArray[np.float64]
    unknown: NDArray[np.bool_]


class Scorer:
    """Both language models of a biLM with its head.

    Attributes:
        engine: The implementation of the biLM.

    Args:
        engine: The implementation of the biLM.
        config: The configuration of the LSTMs.
        head: The LM head, on the engine's device.
        device: That device.
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
            types: The meaning of the numbers in `texts`.
            texts: Sentences as types, each followed by `</S>`. The state is carried within a text.
            start: The initial state of each text, as one row; None is the zero state.

        Yields:
            The number of each text with its losses, the longest texts first.
        """
        # Texts of similar lengths need less padding.
        order = sorted(range(len(texts)), key=lambda i: -len(texts[i]))
        for window in windows(order, lambda i: len(texts[i]), _WINDOW_TOKENS):
            flat = [np.asarray(texts[i], dtype=np.int64) for i in window]
            # Each distinct word of the window is encoded once.
            distinct, numbers = np.unique(
                np.concatenate([*flat, [types.begin, types.end]]), return_inverse=True
            )
            begin, end = int(numbers[-2]), int(numbers[-1])
            with torch.inference_mode():
                x = types.encode(distinct)
                words = types.words(distinct)
                bounds = np.cumsum([0, *map(len, flat)])
                for first in range(0, len(window), self._rows):
                    members = window[first : first + self._rows]
                    cut = bounds[first : first + len(members) + 1]
                    group = _Group(numbers[cut[0] : cut[-1]], cut - cut[0], begin, end)
                    values = self._read(group, x, words, start)
                    unknown = words[group.targets] == types.unknown
                    for i, begin_i, end_i in zip(
                        members, group.bounds, group.bounds[1:], strict=False
                    ):
                        yield i, Losses(values[:, begin_i:end_i], unknown[:, begin_i:end_i])

    def _read(
        self,
        group: _Group,
        x: Tensor,
        words: NDArray[np.int64],
        start: LstmState | None,
    ) -> NDArray[np.float64]:
        """Read the texts of a group in parallel, a number of steps at a time."""
        rows, d = len(group.lengths), self._config.projection_dim
        state = LstmState.zeros(self._config, rows, like=x)
        if start is not None:
            state = LstmState(*(part.to(self._device) for part in start)).expand(rows)
        steps = min(_MAX_STEPS, max(_MIN_STEPS, self._segment_tokens // rows))
        pending = _Pending(self._head, np.empty(group.targets.shape))
        for first in range(0, int(group.lengths.max()), steps):
            packing = Packing.of(np.clip(group.lengths - first, 0, steps))
            ahead, back = group.positions(packing, first)
            layers, state = self.engine.contextualize(
                x[self._index(group.inputs[0, ahead])],
                packing,
                state,
                x[self._index(group.inputs[1, back])],
            )
            for direction, at in enumerate((ahead, back)):
                h = layers[-1][:, direction * d : (direction + 1) * d]
                targets = self._index(words[group.targets[direction, at]])
                pending.add(h, targets, direction, at)
        return pending.finish()

    def _index(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)


class _Group:
    """Concatenated texts that are read in parallel.

    Attributes:
        bounds: The start of each text, and the end of the last one.
        lengths: Tokens of each text.
        inputs: The inputs of the forward and the backward LM at each position, shape (2, N).
        targets: Their targets, shape (2, N).
    """

    def __init__(
        self, tokens: NDArray[np.int64], bounds: NDArray[np.int64], begin: int, end: int
    ) -> None:
        before = np.empty_like(tokens)
        before[1:] = tokens[:-1]
        before[before == end] = begin
        before[bounds[:-1]] = begin
        self.bounds, self.lengths = bounds, np.diff(bounds)
        self.inputs = np.stack([before, tokens])
        self.targets = np.stack([tokens, before])

    def positions(
        self, packing: Packing, first: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the positions of some steps: forward from the starts, backward from the ends."""
        rows = packing.rows
        ahead = self.bounds[rows] + first + packing.steps
        back = self.bounds[rows + 1] - first - packing.lengths[rows] + packing.steps
        return ahead, back


class _Pending:
    """Collects the states of many positions, and computes their losses together."""

    def __init__(self, head: Head, values: NDArray[np.float64]) -> None:
        self._head, self._values = head, values
        self._waiting: list[tuple[Tensor, Tensor, int, NDArray[np.int64]]] = []
        self._size = 0

    def add(self, h: Tensor, targets: Tensor, direction: int, at: NDArray[np.int64]) -> None:
        self._waiting.append((h, targets, direction, at))
        self._size += len(targets)
        if self._size >= _POSITIONS:
            self.finish()

    def finish(self) -> NDArray[np.float64]:
        if self._waiting:
            h, targets, directions, positions = zip(*self._waiting, strict=True)
            losses = self._head.losses(torch.cat(h), torch.cat(targets)).cpu().numpy()
            for direction, at, values in zip(
                directions,
                positions,
                np.split(losses, np.cumsum([len(at) for at in positions])[:-1]),
                strict=True,
            ):
                self._values[direction, at] = values
            self._waiting, self._size = [], 0
        return self._values
