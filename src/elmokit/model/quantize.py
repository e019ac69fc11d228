"""Quantize weights and activations to int8, with one scale per row.

    q[n, k] = round(w[n, k] / scale[n]),   scale[n] = max_k |w[n, k]| / 127

The quantization is symmetric. For weights, there is one scale per output of the product, and for
activations, one per token. Products are exact sums of integers, so the result for a token does not
depend on other tokens.

Some activations have outliers. For example, the maximum of sigmoid(o) tanh(c) in a trained model is
25 times the typical value. Such activations would lose too much precision in 8 bits, so they are
quantized to 16 bits and split into two int8 halves: 256 * high + low.
"""

from __future__ import annotations

import torch
from torch import Tensor

MAX_INT8 = 127
MAX_WIDE = 256 * 127 + 127


def quantize_rows(w: Tensor) -> tuple[Tensor, Tensor]:
    """Quantize each row of a matrix to int8 with its own scale.

    Shape:
        w (N, K) -> int8 (N, K), float32 scales (N,). A row of zeros has the scale 0.
    """
    quantized, scale = _round_rows(w, MAX_INT8)
    return quantized.to(torch.int8), scale


def dequantize_rows(q: Tensor, scale: Tensor) -> Tensor:
    """Convert int8 rows and their scales back to float32."""
    return q.float().mul_(scale.unsqueeze(1))


def quantize_rows_wide(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Quantize each row of a matrix to 16 bits, as two int8 halves, with its own scale.

    Shape:
        x (N, K) -> high and low, int8 (N, K) each, float32 scales (N,)
    """
    quantized, scale = _round_rows(x, MAX_WIDE)
    integers = quantized.to(torch.int32)
    high = (integers + 128) >> 8
    return high.to(torch.int8), (integers - (high << 8)).to(torch.int8), scale


def _round_rows(x: Tensor, largest: int) -> tuple[Tensor, Tensor]:
    """Scale and round each row to integers from -largest to largest; also return the scales."""
    scale = x.abs().amax(dim=1).float() / largest
    inverse = torch.where(scale > 0, 1 / scale, torch.zeros_like(scale))
    return (x * inverse.unsqueeze(1)).round_(), scale
