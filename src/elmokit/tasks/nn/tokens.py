"""x_k of a task model: a word vector and a character CNN."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.model.chars import N_CHARACTERS, char_ids, spelled_length
from elmokit.tasks.batches import TokenBatch
from elmokit.tasks.words import UNKNOWN_ROW, Words


class WordVectors(nn.Module):
    """The vectors of `Words`: those of training words may be trained, the others never are."""

    fixed: Tensor

    def __init__(self, words: Words, *, trainable: bool, word_dropout: float = 0.0) -> None:
        super().__init__()
        self.words = words
        self.word_dropout = word_dropout
        self.n_tuned = words.n_training
        self.dim = words.dim
        vectors = torch.from_numpy(words.vectors).float()
        self.tuned = nn.Parameter(vectors[: self.n_tuned].clone(), requires_grad=trainable)
        # Saved with the words, not with the weights.
        self.register_buffer("fixed", vectors[self.n_tuned :].clone(), persistent=False)

    def forward(self, tokens: TokenBatch) -> Tensor:
        """Look up the vectors of tokens: (B, T, dim)."""
        rows = torch.tensor(self.words.rows(tokens.types), device=tokens.index.device)
        ids = rows[tokens.index]
        if self.training and self.word_dropout:
            dropped = torch.rand(ids.shape, device=ids.device) < self.word_dropout
            ids = ids.masked_fill(dropped, UNKNOWN_ROW)
        vectors = F.embedding(ids.clamp(max=self.n_tuned - 1), self.tuned)
        if not len(self.fixed):
            return vectors
        others = F.embedding((ids - self.n_tuned).clamp(min=0), self.fixed)
        return torch.where((ids < self.n_tuned).unsqueeze(2), vectors, others)


@lru_cache(maxsize=200_000)
def _spelled(word: str, max_characters: int) -> NDArray[np.int16]:
    """Return the character ids of a word (cached)."""
    return np.array(char_ids(word, max_characters), dtype=np.int16)


class CharCnn(nn.Module):
    """A word vector computed from characters: embeddings, one convolution, max pooling.

    Reads UTF-8 bytes as the biLM does, so it needs no vocabulary.
    """

    def __init__(self, *, dim: int, filters: int, width: int, max_characters: int = 50) -> None:
        super().__init__()
        self.dim = filters
        self.width = width
        self.max_characters = max_characters
        self.embedding = nn.Embedding(N_CHARACTERS, dim)
        self.convolution = nn.Conv1d(dim, filters, width)

    def forward(self, tokens: TokenBatch) -> Tensor:
        """Compute each distinct word once: (B, T, filters)."""
        spelled = [_spelled(word, self.max_characters) for word in tokens.types]
        ids = np.stack(spelled).astype(np.int64)
        # `width` paddings after the longest word, so that every word is followed by at least
        # one window of padding: then the maximum does not depend on the other words.
        longest = int(spelled_length(ids).max(initial=0)) + self.width
        ids = ids[:, :longest]
        read = torch.from_numpy(ids).to(tokens.index.device)
        if (short := longest - ids.shape[1]) > 0:
            read = F.pad(read, (0, short), value=N_CHARACTERS - 1)
        windows = self.convolution(self.embedding(read).transpose(1, 2))  # (n, filters, C')
        vectors: Tensor = torch.relu(windows.amax(dim=2))
        return vectors[tokens.index]


class TokenEncoder(nn.Module):
    """[word vector; character vector] of each token.

    Args:
        words: The word vectors.
        char_dim: Size of a character's embedding.
        char_filters: Filters of the character CNN; 0: no character CNN.
        char_width: Width of the filters in characters.

    Attributes:
        dim: The size of x_k.
    """

    def __init__(
        self, words: WordVectors, char_dim: int = 0, char_filters: int = 0, char_width: int = 0
    ) -> None:
        super().__init__()
        self.words = words
        self.chars: CharCnn | None = None
        if char_filters:
            self.chars = CharCnn(dim=char_dim, filters=char_filters, width=char_width)
        self.dim = words.dim + char_filters

    def forward(self, tokens: TokenBatch) -> Tensor:
        words: Tensor = self.words(tokens)
        return words if self.chars is None else torch.cat([words, self.chars(tokens)], dim=2)
