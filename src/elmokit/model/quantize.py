"""Numbers as int8 with one scale per row: weights once, activations as they come.

    q[n, k] = round(w[n, k] / scale[n]),   scale[n] = max_k |w[n, k]| / 127

The scale is symmetric and belongs to one output of a product alone (or, for activations, to one
token), so the sums of a product are integers and exact, and no token depends on another.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = 127


def quantize_rows(w: Tensor) -> tuple[Tensor, Tensor]:
    """Round each row of a matrix to int8 by a scale of its own.

    Shape:
        w (N, K) -> int8 (N, K), float32 scales (N,); a row of zeros has scale 0
    """
    scale = w.abs().amax(dim=1).float() / LARGEST
    inverse = torch.where(scale > 0, 1 / scale, torch.zeros_like(scale))
    return (w * inverse.unsqueeze(1)).round_().to(torch.int8), scale


def dequantize_rows(q: Tensor, scale: Tensor) -> Tensor:
    """Return the float32 numbers that int8 rows and their scales stand for."""
    return q.float() * scale.unsqueeze(1)
