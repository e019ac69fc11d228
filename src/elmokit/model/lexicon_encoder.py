"""The token encoder of ELMoForManyLangs: t_k -> x_k, from a word embedding table and characters.

    word       -> embedding                                                    ]
    characters -> embeddings -> convolutions -> max -> activation -> highways  ] -> projection

The characters are encoded as in `charcnn.py`, but they are Unicode characters instead of bytes. The
projection reads the encoded characters and an embedding of the word. Some models have only one of
these inputs.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import LexiconConfig
from elmokit.errors import WeightsError
from elmokit.model.charcnn import Highway
from elmokit.model.lexicon import Lexicon


class LexiconEncoder(nn.Module):
    """Computes x_k from the word ids and character ids of n tokens.

    Attributes:
        lexicon: The words and characters that the ids refer to. The lexicon is not part of the
            weights, so code that loads a model must set it.

    Shape:
        ids (n, 1 + C) from `elmokit.model.lexicon` -> (n, D)
    """

    def __init__(self, config: LexiconConfig, projection_dim: int) -> None:
        super().__init__()
        self.config = config
        self.lexicon: Lexicon | None = None
        self.word_embed: nn.Parameter | None = None
        self.char_embed: nn.Parameter | None = None
        if config.n_words:
            self.word_embed = nn.Parameter(torch.empty(config.n_words, config.word_dim))
            nn.init.uniform_(self.word_embed, -0.25, 0.25)
        if config.n_characters:
            self.char_embed = nn.Parameter(torch.empty(config.n_characters, config.embedding_dim))
            nn.init.uniform_(self.char_embed, -0.25, 0.25)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.embedding_dim, count, width) for width, count in config.filters
        )
        self.highways = nn.ModuleList(Highway(config.n_filters) for _ in range(config.n_highway))
        self.projection = nn.Linear(config.word_dim + config.n_filters, projection_dim)

    @property
    def required_lexicon(self) -> Lexicon:
        """The lexicon. Raises an error if it is not set."""
        if self.lexicon is None:
            raise WeightsError(
                "This model has no lexicon of words and characters. Load the complete model "
                "directory, or set bilm.encoder.lexicon."
            )
        return self.lexicon

    def forward(self, ids: Tensor) -> Tensor:
        inputs = []
        if self.word_embed is not None:
            inputs.append(F.embedding((ids[:, 0] - 1).clamp(min=0), self.word_embed))
        if self.char_embed is not None:
            indices = (ids[:, 1:] - 1).clamp(min=0)
            characters = F.embedding(indices, self.char_embed).transpose(1, 2)  # (n, e, C)
            activation = torch.relu if self.config.activation == "relu" else torch.tanh
            pooled = [activation(conv(characters).amax(dim=2)) for conv in self.convolutions]
            x = torch.cat(pooled, dim=1)  # (n, F)
            for highway in self.highways:
                x = highway(x)
            inputs.append(x)
        projected: Tensor = self.projection(torch.cat(inputs, dim=1))
        return projected  # (n, D)
