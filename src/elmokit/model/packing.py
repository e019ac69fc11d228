"""Packed batches of sentences of different lengths, without padding.

Tokens are ordered by time step, and by decreasing sentence length within a time step. The tokens of
each time step are therefore contiguous:

    sentences  a b c      packed  a d f b e c
               d e        active  3   2   1
               f

All computations in the biLM use packed batches, so padding neither affects the results nor takes
time. N is the number of tokens in the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # ONNX models use this module without torch
    from torch import Tensor

T = TypeVar("T")


@dataclass(frozen=True)
class Packing:
    """The order of the tokens of a packed batch.

    Attributes:
        lengths: Length of each sentence, in the caller's order.
        active: For each time step, the number of sentences that have a token. The numbers never
            increase, and their sum is N.
        order: Sentences by decreasing length, as indices in the caller's order, shape (B,).
        rows: Sentence of each packed token, as an index in the caller's order, shape (N,).
        steps: Time step of each packed token, which is its position in the sentence, shape (N,).
        reversal: Permutation of the packed tokens that reverses each sentence, shape (N,). It is
            its own inverse.
        starts: Packed position of the first token of each time step, followed by N.
    """

    lengths: NDArray[np.int64]
    active: list[int]
    order: NDArray[np.int64]
    rows: NDArray[np.int64]
    steps: NDArray[np.int64]
    reversal: NDArray[np.int64]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, lengths: Sequence[int] | NDArray[np.int64]) -> Packing:
        """Return the packing of sentences with these lengths, which may be 0."""
        length = np.asarray(lengths, dtype=np.int64)
        order = np.argsort(-length, kind="stable")
        sorted_lengths = length[order]
        longest = int(sorted_lengths[0]) if len(sorted_lengths) else 0
        # For each step t = 0, 1, ..., the number of sentences longer than t.
        active = np.searchsorted(-sorted_lengths, -np.arange(longest), side="left")
        starts = np.zeros(longest + 1, dtype=np.int64)
        active.cumsum(out=starts[1:])
        steps = np.repeat(np.arange(longest), active)
        packed_rows = np.arange(starts[-1]) - starts[steps]
        reversal = starts[sorted_lengths[packed_rows] - 1 - steps] + packed_rows
        return cls(length, active.tolist(), order, order[packed_rows], steps, reversal, starts)

    @property
    def n_tokens(self) -> int:
        """N, the number of tokens in the batch."""
        return len(self.rows)

    def positions(self, rows: NDArray[np.int64], steps: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the packed position of each token, given its sentence and time step."""
        rank = np.empty_like(self.order)
        rank[self.order] = np.arange(len(rank))
        return self.starts[steps] + rank[rows]

    def pack(self, padded: Tensor) -> Tensor:
        """Pack a padded tensor: (B, T, ...) -> (N, ...)."""
        import torch

        rows, steps = (torch.from_numpy(a).to(padded.device) for a in (self.rows, self.steps))
        return padded[rows, steps]

    def unpack(self, packed: Tensor) -> Tensor:
        """Pad a packed tensor with zeros: (..., N, D) -> (..., B, T, D)."""
        import torch

        rows, steps = (torch.from_numpy(a).to(packed.device) for a in (self.rows, self.steps))
        size = (*packed.shape[:-2], len(self.lengths), len(self.active), packed.shape[-1])
        padded = packed.new_zeros(size)
        padded[..., rows, steps, :] = packed
        return padded


def step_chunks(active: list[int], n_tokens: int) -> list[list[int]]:
    """Divide time steps into chunks of at most `n_tokens` tokens, or of a single step.

    Args:
        active: Number of sentences in each time step.
        n_tokens: Maximum number of tokens in a chunk with several steps.

    Returns:
        The elements of `active`, grouped by chunk.
    """
    chunks: list[list[int]] = []
    size = n_tokens
    for n in active:
        if size + n > n_tokens:
            chunks.append([])
            size = 0
        chunks[-1].append(n)
        size += n
    return chunks


def windows(texts: Iterable[T], length: Callable[[T], int], budget: int) -> Iterator[list[T]]:
    """Divide a stream of texts into consecutive windows of about `budget` tokens."""
    window: list[T] = []
    size = 0
    for text in texts:
        window.append(text)
        size += length(text)
        if size >= budget:
            yield window
            window, size = [], 0
    if window:
        yield window
