"""Batches of examples of similar length, with a limit on tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.embed.layer_cache import Layers


class Example(Protocol):
    """One item of a task's data."""

    @property
    def texts(self) -> Sequence[Sequence[str]]:
        """The tokenized sentences that the biLM reads: one in NER, two in SNLI, ..."""


E = TypeVar("E", bound=Example)


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Texts of a batch as one padded array.

    Attributes:
        types: The distinct tokens.
        index: Position of each token in `types`, shape (B, T); 0 in the padding.
        mask: True where there is a token, shape (B, T).
        lengths: Tokens in each text.
    """

    types: list[str]
    index: Tensor
    mask: Tensor
    lengths: list[int]

    @classmethod
    def of(cls, texts: Sequence[Sequence[str]], device: torch.device) -> TokenBatch:
        """Pad texts to one array; it has at least one column, even if all texts are empty."""
        types: dict[str, int] = {}
        lengths = [len(text) for text in texts]
        index = np.zeros((len(texts), max([1, *lengths])), dtype=np.int64)
        for row, text in enumerate(texts):
            index[row, : len(text)] = [types.setdefault(token, len(types)) for token in text]
        mask = np.arange(index.shape[1]) < np.array(lengths, dtype=np.int64)[:, None]
        return cls(
            list(types) or [""],
            torch.from_numpy(index).to(device),
            torch.from_numpy(mask).to(device),
            lengths,
        )


class Batch(Generic[E]):
    """Examples that are processed together, and the layers of their texts.

    Attributes:
        examples: The examples.
        device: Device of the task model.
    """

    def __init__(
        self,
        examples: Sequence[E],
        numbers: Sequence[range],
        layers: Layers | None,
        device: torch.device,
    ) -> None:
        self.examples = list(examples)
        self.device = device
        self._numbers = numbers  # of the texts of each example in `layers`
        self._layers = layers

    def tokens(self, which: int = 0) -> TokenBatch:
        """Return text number `which` of every example."""
        return TokenBatch.of([example.texts[which] for example in self.examples], self.device)

    def layers(self, which: int = 0) -> Tensor | None:
        """Return h_{k,j} of the same texts, (L + 1, B, T, 2D); None without ELMo."""
        return self._padded([own[which] for own in self._numbers])

    def part(self, row: int, texts: Sequence[int]) -> tuple[TokenBatch, Tensor | None]:
        """Return some texts of one example, such as part of a long document, and their layers."""
        own, numbers = self.examples[row].texts, self._numbers[row]
        tokens = TokenBatch.of([own[i] for i in texts], self.device)
        return tokens, self._padded([numbers[i] for i in texts])

    def _padded(self, numbers: Sequence[int]) -> Tensor | None:
        return None if self._layers is None else self._layers.padded(numbers)

    def __len__(self) -> int:
        return len(self.examples)


class Dataset(Generic[E]):
    """Examples and the layers of their texts."""

    def __init__(self, examples: Sequence[E], layers: Layers | None, device: torch.device) -> None:
        ends = np.cumsum([0, *(len(example.texts) for example in examples)]).tolist()
        self._numbers = [range(a, b) for a, b in pairwise(ends)]
        self.examples = list(examples)
        self.layers = layers
        self.device = device
        self.sizes = np.array([_size(example) for example in examples], dtype=np.int64)

    def batch(self, members: Sequence[int]) -> Batch[E]:
        """Return the batch of some examples."""
        examples = [self.examples[i] for i in members]
        return Batch(examples, [self._numbers[i] for i in members], self.layers, self.device)

    def __len__(self) -> int:
        return len(self.examples)


def texts_of(examples: Sequence[Example]) -> list[Sequence[str]]:
    """Return the texts of all examples in the order of `Dataset`."""
    return [text for example in examples for text in example.texts]


def _size(example: Example) -> int:
    return max(1, sum(len(text) for text in example.texts))


def plan(
    sizes: NDArray[np.int64], size: int, tokens: int, *, seed: tuple[int, int] | None = None
) -> list[list[int]]:
    """Group examples into batches.

    Args:
        sizes: Tokens in each example.
        size: Maximum number of examples per batch.
        tokens: Maximum number of tokens per batch, including padding; a longer example is a batch
            of its own.
        seed: Random seed for the order, different in every epoch. None: longest first, for
            evaluation.

    Returns:
        The indices of the examples of each batch.
    """
    if seed is None:
        order = np.argsort(-sizes, kind="stable")
    else:
        random = np.random.default_rng(seed)
        # Noise in the lengths makes batches differ between epochs.
        noisy = sizes * random.uniform(0.9, 1.1, len(sizes))
        shuffled = random.permutation(len(sizes))
        order = shuffled[np.argsort(-noisy[shuffled], kind="stable")]
    batches = list(cut(order.tolist(), sizes, size, tokens))
    if seed is not None:
        batches = [batches[i] for i in random.permutation(len(batches))]
    return batches


def cut(
    order: Sequence[int], sizes: NDArray[np.int64], size: int, tokens: int
) -> Iterator[list[int]]:
    """Group items in the given order; see `plan`."""
    batch: list[int] = []
    longest = 0
    for number in order:
        longest = max(longest, int(sizes[number]))
        if batch and (len(batch) == size or longest * (len(batch) + 1) > tokens):
            yield batch
            batch, longest = [], int(sizes[number])
        batch.append(number)
    if batch:
        yield batch
