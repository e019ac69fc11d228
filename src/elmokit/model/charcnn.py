"""Context-independent token encoders: t_k -> x_k, from characters or a word embedding table.

    characters -> embeddings -> convolutions of several widths -> max over the word -> activation
               -> highway layers -> projection

Both directions of the biLM read the same x_k, which is also layer 0 of ELMo.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import CharCnnConfig
from elmokit.model.chars import N_STORED_CHARACTERS


class Highway(nn.Module):
    """x <- g * relu(transform(x)) + (1 - g) * x, g = sigmoid(carry(x)).

    As in bilm-tf, the gate named "carry" is the weight of the *transformed* input. Its initial bias
    is -2, so an untrained highway layer mostly returns its input.
    """

    def __init__(self, n_filters: int) -> None:
        super().__init__()
        self.carry = nn.Linear(n_filters, n_filters)
        self.transform = nn.Linear(n_filters, n_filters)
        for linear in (self.carry, self.transform):
            nn.init.normal_(linear.weight, std=n_filters**-0.5)
        nn.init.constant_(self.carry.bias, -2.0)
        nn.init.zeros_(self.transform.bias)

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.carry(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x  # (n, F)


class CharacterEncoder(nn.Module):
    """Computes x_k from the character ids of n tokens.

    Shape:
        ids (n, C) from `elmokit.model.chars` -> (n, D)
    """

    def __init__(self, config: CharCnnConfig, projection_dim: int) -> None:
        super().__init__()
        self.config = config
        # Row 0 of the table (for padding positions) is always zero and therefore not a parameter.
        self.char_embed = nn.Parameter(torch.empty(N_STORED_CHARACTERS, config.embedding_dim))
        self.convolutions = nn.ModuleList(
            nn.Conv1d(config.embedding_dim, count, width) for width, count in config.filters
        )
        self.highways = nn.ModuleList(Highway(config.n_filters) for _ in range(config.n_highway))
        self.projection: nn.Linear | None = None
        if config.n_filters != projection_dim:
            self.projection = nn.Linear(config.n_filters, projection_dim)
        self._initialize()

    def _initialize(self) -> None:
        """Initialize the weights as bilm-tf does."""
        nn.init.uniform_(self.char_embed, -1.0, 1.0)
        for convolution, (width, _) in zip(self.convolutions, self.config.filters, strict=True):
            assert isinstance(convolution, nn.Conv1d)
            assert convolution.bias is not None
            if self.config.activation == "relu":
                nn.init.uniform_(convolution.weight, -0.05, 0.05)
            else:
                std = (width * self.config.embedding_dim) ** -0.5
                nn.init.normal_(convolution.weight, std=std)
            nn.init.zeros_(convolution.bias)
        if self.projection is not None:
            nn.init.normal_(self.projection.weight, std=self.config.n_filters**-0.5)
            nn.init.zeros_(self.projection.bias)

    def table(self) -> Tensor:
        """Return the embedding table, including the zero row for padding positions.

        Returns:
            The character embeddings, shape (262, e).
        """
        zero = self.char_embed.new_zeros(1, self.config.embedding_dim)
        return torch.cat([zero, self.char_embed])

    def filter_matrix(self) -> tuple[Tensor, Tensor]:
        """Return all filters as one matrix over windows of `max_width` characters.

        Narrower filters are padded with zeros. Kernels use the matrix to compute all filters at
        once.

        Returns:
            The matrix, shape (F, max_width * e), and the biases, shape (F,).
        """
        width = self.config.max_width
        weights, biases = [], []
        for conv in self.convolutions:
            assert isinstance(conv, nn.Conv1d)
            assert conv.bias is not None
            padded = F.pad(conv.weight, (0, width - conv.weight.shape[2]))  # (n, e, width)
            weights.append(padded.transpose(1, 2).flatten(1))
            biases.append(conv.bias)
        return torch.cat(weights), torch.cat(biases)

    def forward(self, ids: Tensor) -> Tensor:
        characters = F.embedding(ids, self.table()).transpose(1, 2)  # (n, e, C)
        activation = torch.relu if self.config.activation == "relu" else torch.tanh
        # The maximum includes windows with padding characters (id 261), whose embedding is learned.
        # The activation is monotone, so it can be applied after the maximum.
        pooled = [activation(conv(characters).amax(dim=2)) for conv in self.convolutions]
        x = torch.cat(pooled, dim=1)  # (n, F)
        for highway in self.highways:
            x = highway(x)
        return x if self.projection is None else self.projection(x)  # (n, D)


class WordEncoder(nn.Module):
    """Computes x_k from word ids, for models with a closed vocabulary.

    Shape:
        ids (n,), v + 1 for word v of the vocabulary and 0 for padding -> (n, D)
    """

    def __init__(self, n_words: int, projection_dim: int) -> None:
        super().__init__()
        self.embedding = nn.Parameter(torch.empty(n_words, projection_dim))
        nn.init.xavier_uniform_(self.embedding)

    def forward(self, ids: Tensor) -> Tensor:
        x = F.embedding((ids - 1).clamp(min=0), self.embedding)
        return x * (ids > 0).unsqueeze(-1)  # (n, D)
