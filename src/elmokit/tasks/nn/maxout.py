"""Maxout (Goodfellow et al. 2013): a layer whose activation is learned."""

from __future__ import annotations

from torch import Tensor, nn


class Maxout(nn.Module):
    """Each output is the largest of `pieces` linear functions of the input.

    Shape:
        (..., input_dim) -> (..., output_dim)
    """

    def __init__(self, input_dim: int, output_dim: int, pieces: int) -> None:
        super().__init__()
        self.pieces = pieces
        self.linear = nn.Linear(input_dim, output_dim * pieces)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.linear(x).unflatten(-1, (-1, self.pieces)).amax(dim=-1)
        return found
