"""Batches of examples with similar lengths and a limited number of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.embed.blocks import TokenIds
from elmokit.embed.layer_cache import Layers


class Example(Protocol):
    """An example from the data of a task."""

    @property
    def texts(self) -> Sequence[Sequence[str]]:
        """The tokenized texts for the biLM; for example, NER has one text and SNLI has two."""


E = TypeVar("E", bound=Example)


@dataclass(frozen=True, eq=False)
class TokenBatch:
    """Tokenized texts as one padded array.

    Attributes:
        types: The distinct tokens.
        index: For each token, its index in `types`, (B, T); 0 for padding.
        mask: Whether each position contains a token, (B, T).
        lengths: The number of tokens in each text.
    """

    types: list[str]
    index: Tensor
    mask: Tensor
    lengths: list[int]

    @classmethod
    def of(cls, texts: Sequence[Sequence[str]], device: torch.device) -> TokenBatch:
        """Pad texts. The array has at least one column, even if all texts are empty."""
        tokens = TokenIds.of(texts)
        lengths = torch.from_numpy(tokens.lengths)
        mask = torch.arange(int(tokens.lengths.max(initial=1))) < lengths.unsqueeze(1)
        index = torch.zeros(mask.shape, dtype=torch.long)
        index[mask] = torch.from_numpy(tokens.ids).long()
        return cls(tokens.words or [""], index.to(device), mask.to(device), lengths.tolist())


@dataclass(eq=False)
class Batch(Generic[E]):
    """Examples that are processed together, and the layers of their texts.

    Attributes:
        examples: The examples.
        device: Device of the task model.
    """

    examples: list[E]
    device: torch.device
    _text_ids: list[range]  # for each example, the indices of its texts in `_layers`
    _layers: Layers | None

    def tokens(self, i: int = 0) -> TokenBatch:
        """Return the tokens of text `i` of each example."""
        return TokenBatch.of([example.texts[i] for example in self.examples], self.device)

    def layers(self, i: int = 0) -> Tensor | None:
        """Return h_{k,j} of text `i` of each example, (L + 1, B, T, 2D); None without ELMo."""
        return self._padded([ids[i] for ids in self._text_ids])

    def part(self, row: int, texts: Sequence[int]) -> tuple[TokenBatch, Tensor | None]:
        """Return the tokens and the layers of some texts of an example.

        Args:
            row: The index of the example in the batch.
            texts: The indices of the texts in the example.
        """
        tokens = [self.examples[row].texts[i] for i in texts]
        layers = self._padded([self._text_ids[row][i] for i in texts])
        return TokenBatch.of(tokens, self.device), layers

    def _padded(self, text_ids: Sequence[int]) -> Tensor | None:
        return None if self._layers is None else self._layers.padded(text_ids)

    def __len__(self) -> int:
        return len(self.examples)


class Dataset(Generic[E]):
    """The examples of a split, and the layers of their texts.

    Args:
        examples: The examples.
        layers: The layers of all texts, in the order of `collect_texts`; None without ELMo.
        device: Device of the task model.

    Attributes:
        sizes: The number of tokens in each example, at least 1.
    """

    def __init__(self, examples: Sequence[E], layers: Layers | None, device: torch.device) -> None:
        self.examples = list(examples)
        self.layers = layers
        self.device = device
        self.sizes = np.array([max(1, sum(map(len, example.texts))) for example in examples])
        ends = np.cumsum([0, *(len(example.texts) for example in examples)]).tolist()
        self._text_ids = [range(start, end) for start, end in pairwise(ends)]

    def batch(self, indices: Sequence[int]) -> Batch[E]:
        """Return a batch of the examples at these indices."""
        examples = [self.examples[i] for i in indices]
        return Batch(examples, self.device, [self._text_ids[i] for i in indices], self.layers)

    def __len__(self) -> int:
        return len(self.examples)


def collect_texts(examples: Sequence[Example]) -> list[Sequence[str]]:
    """Return the texts of all examples in one list."""
    return [text for example in examples for text in example.texts]


def plan_batches(
    sizes: NDArray[np.int64],
    max_examples: int,
    max_tokens: int,
    *,
    seed: tuple[int, int] | None = None,
) -> list[list[int]]:
    """Group examples of similar size into batches.

    Args:
        sizes: Number of tokens in each example.
        max_examples: Maximum number of examples per batch.
        max_tokens: Maximum number of tokens per batch, including padding. An example with
            more tokens forms a batch of its own.
        seed: The random seed for the order of training examples, as (seed of the run, epoch). If
            None, the examples are sorted by decreasing length, as for evaluation.

    Returns:
        The indices of the examples in each batch.
    """
    if seed is None:
        order = np.argsort(-sizes, kind="stable").tolist()
        return list(group(order, sizes, max_examples, max_tokens))
    random = np.random.default_rng(seed)
    # Random noise in the sizes gives different batches in each epoch.
    noisy = sizes * random.uniform(0.9, 1.1, len(sizes))
    shuffled = random.permutation(len(sizes))
    order = shuffled[np.argsort(-noisy[shuffled], kind="stable")].tolist()
    batches = list(group(order, sizes, max_examples, max_tokens))
    return [batches[i] for i in random.permutation(len(batches))]


def group(
    order: Sequence[int], sizes: NDArray[np.int64], max_examples: int, max_tokens: int
) -> Iterator[list[int]]:
    """Group consecutive examples of `order` into batches, as described in `plan_batches`."""
    batch: list[int] = []
    longest = 0
    for i in order:
        longest = max(longest, int(sizes[i]))
        if batch and (len(batch) == max_examples or longest * (len(batch) + 1) > max_tokens):
            yield batch
            batch, longest = [], int(sizes[i])
        batch.append(i)
    if batch:
        yield batch
