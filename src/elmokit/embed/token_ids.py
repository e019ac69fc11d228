"""Sentences as ids of their distinct words, so that words are encoded only once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class TokenIds(NamedTuple):
    """S tokenized sentences with N tokens.

    Attributes:
        words: The distinct words, in the order of their first occurrence.
        ids: The index of the word of each token, shape (N,).
        lengths: The number of tokens of each sentence, shape (S,).
    """

    words: list[str]
    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[str]]) -> TokenIds:
        """Convert lists of tokens."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        return cls.of_tokens(list(chain.from_iterable(sentences)), lengths)

    @classmethod
    def of_tokens(cls, tokens: list[str], lengths: NDArray[np.int64]) -> TokenIds:
        """Convert a list of the tokens of all sentences."""
        words = list(dict.fromkeys(tokens))
        index = dict(zip(words, range(len(words)), strict=True))
        # These loops run in C.
        ids = np.fromiter(map(index.__getitem__, tokens), np.int32, len(tokens))
        return cls(words, ids, lengths)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Index of the first token of each sentence, shape (S,)."""
        return np.cumsum(self.lengths) - self.lengths
