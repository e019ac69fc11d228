"""From the vectors of tokens to one of the text: padding has no part, an empty text gives zero.

Shape:
    x (B, T, D), mask (B, T) -> (B, D)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from elmokit.tasks.nn.attention import masked_softmax


def max_pool(x: Tensor, mask: Tensor) -> Tensor:
    """Return the largest value of each feature."""
    found = x.masked_fill(~mask.unsqueeze(2), torch.finfo(x.dtype).min).amax(dim=1)
    return found.masked_fill(~mask.any(dim=1, keepdim=True), 0.0)


def min_pool(x: Tensor, mask: Tensor) -> Tensor:
    """Return the smallest value of each feature."""
    return -max_pool(-x, mask)


def mean_pool(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of each feature."""
    total = x.masked_fill(~mask.unsqueeze(2), 0.0).sum(dim=1)
    return total / mask.sum(dim=1, keepdim=True).clamp(min=1)


class AttentivePool(nn.Module):
    """A mean whose weights are learned: how much a token matters is read in its vector."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(dim, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        weights = masked_softmax(self.weigh(x).squeeze(2), mask)  # (B, T)
        return (weights.unsqueeze(1) @ x).squeeze(1)
