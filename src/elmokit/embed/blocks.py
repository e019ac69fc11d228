"""Blocks of sentences: word ids, batches, vectors that are being computed, and carried states."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.tokenized import TokenizedSentence
from elmokit.embed.vectors import FloatArray, SentenceVectors
from elmokit.model import packing

#: An LSTM state as the NumPy arrays `cell` and `hidden`, for files and other processes.
StateArrays = Mapping[str, FloatArray]
#: An LSTM state of any backend: a named tuple of `cell` and `hidden`, with one row per text.
State = TypeVar("State", bound=tuple[Any, ...])
Extra = TypeVar("Extra")


class TokenIds(NamedTuple):
    """S tokenized sentences with N tokens in total, as ids of their distinct words.

    Attributes:
        words: The distinct words, in order of first occurrence.
        ids: The index of each token in `words`, shape (N,).
        lengths: The number of tokens of each sentence, shape (S,).
    """

    words: list[str]
    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[str]]) -> TokenIds:
        """Convert tokenized sentences."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        return cls.from_tokens(list(chain.from_iterable(sentences)), lengths)

    @classmethod
    def from_tokens(cls, tokens: list[str], lengths: NDArray[np.int64]) -> TokenIds:
        """Convert the concatenated tokens of all sentences."""
        words = list(dict.fromkeys(tokens))
        index = dict(zip(words, range(len(words)), strict=True))
        # This loop runs in C.
        ids = np.fromiter(map(index.__getitem__, tokens), np.int32, len(tokens))
        return cls(words, ids, lengths)

    @property
    def starts(self) -> NDArray[np.int64]:
        """The index of the first token of each sentence, shape (S,)."""
        return np.cumsum(self.lengths) - self.lengths


class Batch(NamedTuple):
    """The tokens of a batch in the order of its sentences, excluding sentence boundaries.

    Attributes:
        sentences: For each sentence of the batch, its index in the block.
        lengths: The number of tokens in each sentence.
        sources: The position of each token in packed order.
        targets: The position of each token in the block.
    """

    sentences: NDArray[np.int64]
    lengths: NDArray[np.int64]
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]


class PendingVectors:
    """The vectors of a block of sentences, shape (K, N, W). They may not have been computed yet.

    `PendingTensor` in model.py is the implementation for torch.
    """

    def __init__(self, shape: tuple[int, int, int], dtype: str) -> None:
        self._array: FloatArray = np.empty(shape, dtype)

    def put(self, layers: Any, batch: Batch) -> None:
        """Store the vectors of a batch, (K, n, W) in packed order."""
        with np.errstate(over="ignore"):
            self._array[:, batch.targets] = layers[:, batch.sources]

    def finish(self) -> None:
        """Start copying the vectors to the host, after the last batch."""

    def array(self) -> FloatArray:
        """Wait for the vectors and return them."""
        return self._array

    @property
    def is_finite(self) -> bool:
        """Whether all values are finite in their data type."""
        return bool(np.isfinite(self._array).all())


def batches_by_length(
    lengths: Sequence[int] | NDArray[np.int64], budget: int, max_sentences: int
) -> Iterator[NDArray[np.int64]]:
    """Group sentences of similar length into batches, and yield the sentence indices of each batch.

    Args:
        lengths: The number of tokens of each sentence.
        budget: Maximum number of tokens per batch. A longer sentence is a separate batch.
        max_sentences: Maximum number of sentences per batch.
    """
    n_tokens = np.asarray(lengths, dtype=np.int64)
    order = np.argsort(-n_tokens, kind="stable")
    ends = np.cumsum(n_tokens[order])
    begin = 0
    while begin < len(order):
        start = ends[begin - 1] if begin else 0
        end = int(np.searchsorted(ends, start + budget, side="right"))
        end = min(max(end, begin + 1), begin + max_sentences)
        yield order[begin:end]
        begin = end


def windows(
    sentences: Iterable[tuple[list[str], Extra]], budget: int
) -> Iterator[list[tuple[list[str], Extra]]]:
    """Divide a stream of sentences into consecutive windows of about `budget` tokens.

    Args:
        sentences: Pairs that consist of the tokens of a sentence and any other value.
        budget: Approximate number of tokens per window.
    """
    return packing.windows(sentences, lambda sentence: len(sentence[0]) + 2, budget)


def compute_in_order(
    compute_batch: Callable[[NDArray[np.int64], Any], Any],
    lengths: NDArray[np.int64],
    rows: int,
    carried: State,
) -> State:
    """Compute `rows` sentences at a time with `state="carry"`, and return the final state."""
    carried = select_rows(carried, list(range(rows)))  # a copy to update
    for first in range(0, len(lengths), rows):
        sentences = np.arange(first, min(first + rows, len(lengths)))
        if lengths[sentences].any():
            final = compute_batch(sentences, select_rows(carried, slice(len(sentences))))
            # If there are fewer sentences than rows, the states of the other rows do not change.
            for values, new_values in zip(carried, final, strict=True):
                values[:, :, : len(sentences)] = new_values
    # The next sentence continues row `len(lengths) % rows`, so this row becomes row 0.
    return select_rows(carried, [(row + len(lengths)) % rows for row in range(rows)])


def select_rows(state: State, rows: slice | list[int]) -> State:
    """Select rows of a state. If `rows` is a list, the result is a copy."""
    return type(state)(*(values[:, :, rows] for values in state))


def split_by_sentence(
    layers: FloatArray, sources: NDArray[np.int64], lengths: NDArray[np.int64]
) -> list[FloatArray]:
    """Copy the layers of tokens to a contiguous array for each sentence.

    Args:
        layers: The layers of all tokens, shape (L + 1, n, 2D).
        sources: The position of each token in `layers`, in the order of the sentences.
        lengths: The number of tokens in each sentence.
    """
    n_layers, n, dim = layers.shape
    ends = lengths.cumsum()
    starts = (ends - lengths).repeat(lengths)
    # The row of layer 0 of each token in `values`, and the number of rows between its layers.
    targets = n_layers * starts + (np.arange(len(sources)) - starts)
    strides = lengths.repeat(lengths)
    rows = np.empty(n_layers * len(sources), dtype=np.int64)
    for j in range(n_layers):
        rows[targets + j * strides] = j * n + sources
    values = layers.reshape(n_layers * n, dim).take(rows, axis=0)
    return [
        values[n_layers * begin : n_layers * end].reshape(n_layers, end - begin, dim)
        for begin, end in pairwise([0, *ends.tolist()])
    ]


# Number of sentences whose vectors share an array. A reference to the vectors of one sentence keeps
# the entire array in memory.
_SENTENCES_PER_ARRAY = 128
_COPY_THREADS = 8


def copy_block(
    sentences: Sequence[TokenizedSentence], tokens: TokenIds, pending: PendingVectors
) -> list[SentenceVectors]:
    """Wait for the vectors of a block, and copy them from pinned memory."""
    layers, starts = pending.array(), tokens.starts

    def copy(first: int) -> list[FloatArray]:
        lengths = tokens.lengths[first : first + _SENTENCES_PER_ARRAY]
        sources = starts[first] + np.arange(lengths.sum())
        return split_by_sentence(layers, sources, lengths)

    firsts = range(0, len(sentences), _SENTENCES_PER_ARRAY)
    with ThreadPoolExecutor(_COPY_THREADS) as pool:  # NumPy releases the GIL
        # Copying a single part takes less time than starting a thread.
        parts = pool.map(copy, firsts) if len(firsts) > 1 else map(copy, firsts)
        arrays = chain.from_iterable(parts)
        return [
            SentenceVectors(words, offsets, array)
            for (words, offsets), array in zip(sentences, arrays, strict=True)
        ]
