"""Which sentences run together: neighbours in length, up to a budget of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

Rest = TypeVar("Rest")


def batches_by_length(
    lengths: Sequence[int], budget: int, max_sentences: int
) -> Iterator[list[int]]:
    """Yield the indices of the sentences of each batch, longest first.

    Args:
        lengths: Tokens in each sentence.
        budget: Tokens in a batch at most; a longer sentence runs alone.
        max_sentences: Sentences in a batch at most.
    """
    batch: list[int] = []
    size = 0
    for index in np.argsort([-length for length in lengths], kind="stable").tolist():
        if batch and (size + lengths[index] > budget or len(batch) == max_sentences):
            yield batch
            batch, size = [], 0
        batch.append(index)
        size += lengths[index]
    if batch:
        yield batch


def windows(
    sentences: Iterable[tuple[list[str], Rest]], budget: int, *, multiple_of: int = 1
) -> Iterator[list[tuple[list[str], Rest]]]:
    """Cut an endless supply of sentences into runs of about `budget` tokens, in order.

    Args:
        sentences: Tokens, each with something that goes along.
        budget: Tokens in a window, about.
        multiple_of: Each window but the last holds a multiple of this many sentences, so that
            texts read side by side keep their rows.
    """
    window: list[tuple[list[str], Rest]] = []
    size = 0
    for sentence in sentences:
        window.append(sentence)
        size += len(sentence[0]) + 2
        if size >= budget and len(window) % multiple_of == 0:
            yield window
            window, size = [], 0
    if window:
        yield window
