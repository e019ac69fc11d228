"""Divide sentences into batches of similar length, and streams into windows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Rest = TypeVar("Rest")


def batches_by_length(
    lengths: Sequence[int] | NDArray[np.int64], budget: int, max_sentences: int
) -> Iterator[NDArray[np.int64]]:
    """Yield the indices of the sentences of each batch, longest first.

    Args:
        lengths: The number of tokens of each sentence.
        budget: Maximum tokens per batch; a longer sentence is a batch of its own.
        max_sentences: Maximum sentences per batch.
    """
    given = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-given, kind="stable")
    ends = np.cumsum(given[order])
    begin = 0
    while begin < len(order):
        done = ends[begin - 1] if begin else 0
        fitting = int(np.searchsorted(ends, done + budget, side="right"))
        end = min(max(fitting, begin + 1), begin + max_sentences)
        yield order[begin:end]
        begin = end


def windows(
    sentences: Iterable[tuple[list[str], Rest]], budget: int
) -> Iterator[list[tuple[list[str], Rest]]]:
    """Divide a stream of sentences into windows of about `budget` tokens, in order.

    Args:
        sentences: Tuples of tokens and any other value.
        budget: Approximate tokens per window.
    """
    window: list[tuple[list[str], Rest]] = []
    size = 0
    for sentence in sentences:
        window.append(sentence)
        size += len(sentence[0]) + 2
        if size >= budget:
            yield window
            window, size = [], 0
    if window:
        yield window
