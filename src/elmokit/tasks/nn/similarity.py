"""How alike two tokens are, by learned weights (Seo et al. 2017)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Trilinear(nn.Module):
    """Scores u . x_i + v . y_j + w . (x_i * y_j), without ever forming x_i * y_j.

    w starts as that of a scaled dot product: tokens that are the same are alike from the first step
    on, where random signs would have to be unlearned.

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
        found: Tensor = together + self.x_alone(x) + self.y_alone(y).transpose(1, 2)
        return found
