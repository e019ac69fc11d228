"""Quantize to int8 with one scale per row: weights once, activations dynamically.

    q[n, k] = round(w[n, k] / scale[n]),   scale[n] = max_k |w[n, k]| / 127

The quantization is symmetric. Each scale applies to a single output of a product (or, for
activations, to a single token), so products sum integers exactly, and no token affects another.

Activations with a few outliers, such as sigmoid(o) tanh(c) of a trained model (whose maximum is 25
times the typical size), lose too much precision in 8 bits. They are split into a high and a low
half of 8 bits each, 256 * high + low.
"""

from __future__ import annotations

import torch
from torch import Tensor

LARGEST = 127
LARGEST_WIDE = 256 * 127 + 127


def quantize_rows(w: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize each row of a matrix to int8 with its own scale.

    Shape:
        w (N, K) -> int8 (N, K), float32 scales (N,); a row of zeros has scale 0
    """
    rounded, scale = _round_rows(w, LARGEST)
    return rounded.to(torch.int8), scale


def dequantize_rows(q: Tensor, scale: Tensor) -> Tensor:
    """Convert int8 rows and their scales back to float32."""
    return q.float().mul_(scale.unsqueeze(1))


def quantize_rows_wide(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize each row of a matrix to 16 bits, in two halves, with its own scale.

    Shape:
        x (N, K) -> high and low, int8 (N, K) each, float32 scales (N,)
    """
    rounded, scale = _round_rows(x, LARGEST_WIDE)
    whole = rounded.to(torch.int32)
    high = (whole + 128) >> 8
    return high.to(torch.int8), (whole - (high << 8)).to(torch.int8), scale


def _round_rows(x: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """Scale each row to integers of at most `largest`; return them and the scales."""
    scale = x.abs().amax(dim=1).float() / largest
    inverse = torch.where(scale > 0, 1 / scale, torch.zeros_like(scale))
    return (x * inverse.unsqueeze(1)).round_(), scale
