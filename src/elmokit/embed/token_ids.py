"""Sentences as ids of their distinct words: what is computed once per word is then looked up."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class TokenIds(NamedTuple):
    """Tokenized sentences, S of them with N tokens in all.

    Attributes:
        words: The distinct words, in the order of their first occurrence.
        ids: For each token the index of its word, shape (N,).
        lengths: Tokens of each sentence, shape (S,).
    """

    words: list[str]
    ids: NDArray[np.int32]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, sentences: Sequence[Sequence[str]]) -> TokenIds:
        """Number the words of lists of tokens."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        return cls.of_tokens(list(chain.from_iterable(sentences)), lengths)

    @classmethod
    def of_tokens(cls, tokens: list[str], lengths: NDArray[np.int64]) -> TokenIds:
        """Number the words of all tokens in one list."""
        words = list(dict.fromkeys(tokens))
        index = dict(zip(words, range(len(words)), strict=True))
        # These loops run in C.
        ids = np.fromiter(map(index.__getitem__, tokens), np.int32, len(tokens))
        return cls(words, ids, lengths)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Index of the first token of each sentence, shape (S,)."""
        return np.cumsum(self.lengths) - self.lengths
