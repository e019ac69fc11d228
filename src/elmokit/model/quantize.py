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
    scale = w.abs().amax(dim=1).float() / LARGEST
    inverse = torch.where(scale > 0, 1 / scale, torch.zeros_like(scale))
    return (w * inverse.unsqueeze(1)).round_().to(torch.int8), scale


def dequantize_rows(q: Tensor, scale: Tensor) -> Tensor:
    """Convert int8 rows and their scales back to float32."""
    return q.float().mul_(scale.unsqueeze(1))


def quantize_rows_wide(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize each row of a matrix to 16 bits, in two halves, with its own scale.

    Shape:
        x (N, K) -> high and low, int8 (N, K) each, float32 scales (N,)
    """
    scale = x.abs().amax(dim=1).float() / LARGEST_WIDE
    inverse = torch.where(scale > 0, 1 / scale, torch.zeros_like(scale))
    whole = (x * inverse.unsqueeze(1)).round_().to(torch.int32)
    high = (whole + 128) >> 8
    return high.to(torch.int8), (whole - (high << 8)).to(torch.int8), scale
