"""Masked attention and pooling."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last dimension where `mask` is true; zero if nothing is."""
    hidden = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return hidden.softmax(dim=-1) * mask


def attend(queries: Tensor, keys: Tensor, key_mask: Tensor) -> Tensor:
    """Return for each query the mean of the keys, weighted by their dot products.

    Shape:
        queries (B, S, D), keys (B, T, D), key_mask (B, T) -> (B, S, D)
    """
    alike = queries @ keys.transpose(1, 2)  # (B, S, T)
    return masked_softmax(alike, key_mask.unsqueeze(1)) @ keys


class Trilinear(nn.Module):
    """Similarity of two tokens with learned weights (Seo et al. 2017).

    Scores u . x_i + v . y_j + w . (x_i * y_j), without materializing x_i * y_j.

    w is initialized as a scaled dot product, so that equal tokens are similar from the first step;
    random signs would have to be unlearned.

    Shape:
        x (B, S, dim), y (B, T, dim) -> (B, S, T)
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.x_alone = nn.Linear(dim, 1, bias=False)
        self.y_alone = nn.Linear(dim, 1, bias=False)
        self.both = nn.Parameter(torch.full((dim,), dim**-0.5))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        together = (x * self.both) @ y.transpose(1, 2)
        alike: Tensor = together + self.x_alone(x) + self.y_alone(y).transpose(1, 2)
        return alike


# Pooling of token vectors to one vector per text; zero for an empty text.
# Shape: x (B, T, D), mask (B, T) -> (B, D)


def max_pool(x: Tensor, mask: Tensor) -> Tensor:
    """Return the largest value of each feature."""
    largest = x.masked_fill(~mask.unsqueeze(2), torch.finfo(x.dtype).min).amax(dim=1)
    return largest.masked_fill(~mask.any(dim=1, keepdim=True), 0.0)


def min_pool(x: Tensor, mask: Tensor) -> Tensor:
    """Return the smallest value of each feature."""
    return -max_pool(-x, mask)


def mean_pool(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of each feature."""
    total = x.masked_fill(~mask.unsqueeze(2), 0.0).sum(dim=1)
    return total / mask.sum(dim=1, keepdim=True).clamp(min=1)


class AttentivePool(nn.Module):
    """A weighted mean; the weight of a token is computed from its vector."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(dim, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        weights = masked_softmax(self.weigh(x).squeeze(2), mask)  # (B, T)
        return (weights.unsqueeze(1) @ x).squeeze(1)
