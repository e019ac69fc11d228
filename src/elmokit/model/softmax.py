"""The language-model head: from the top layer of one direction to words.

One matrix and bias serve both directions (the softmax is tied, as the token encoder is).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class LMHead(nn.Module):
    """log p(word) = log softmax(W h + b), over the words of a vocabulary.

    Shape:
        h (n, D), one direction's half of the top layer -> (n, V)
    """

    def __init__(self, n_words: int, projection_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_words, projection_dim))
        self.bias = nn.Parameter(torch.zeros(n_words))
        nn.init.normal_(self.weight, std=projection_dim**-0.5)

    def forward(self, h: Tensor) -> Tensor:
        return F.log_softmax(F.linear(h, self.weight, self.bias), dim=-1)
