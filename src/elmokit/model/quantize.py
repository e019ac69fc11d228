"""Numbers as int8 with one scale per row: weights once, activations as they come.

    q[n, k] = round(w[n, k] / scale[n]),   scale[n] = max_k |w[n, k]| / 127

The scale is symmetric and belongs to one output of a product alone (or, for activations, to one
token), so the sums of a product are integers and exact, and no token depends on another.

Activations with a few large numbers among many small ones, as sigmoid(o) tanh(c) of a trained model
has (the largest 25 times the usual size), lose too much in 8 bits. They are split into a high and a
low half of 8 bits each, 256 * high + low.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = 127
LARGEST_WIDE = 256 * 127 + 127


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
    return q.float().mul_(scale.unsqueeze(1))


def quantize_rows_wide(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Round each row of a matrix to 16 bits in two halves, by a scale of its own.

    Shape:
        x (N, K) -> high and low, int8 (N, K) each, float32 scales (N,)
    """
    scale = x.abs().amax(dim=1).float() / LARGEST_WIDE
    inverse = torch.where(scale > 0, 1 / scale, torch.zeros_like(scale))
    whole = (x * inverse.unsqueeze(1)).round_().to(torch.int32)
    high = (whole + 128) >> 8
    return high.to(torch.int8), (whole - (high << 8)).to(torch.int8), scale
