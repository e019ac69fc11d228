"""Products with a weight matrix on a CPU, in float32 or int8.

In float32, the weights are stored in the memory layout of oneDNN. torch converts the weights in
every call; with the few rows of one time step, that takes longer than the product: with converted
weights, 8 rows of the original size take a third of the time.

In int8, weights are quantized once, per output, and activations in every call, per token. The sums
are exact integers, so no token depends on the others in its batch (see `quantize.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.model.quantize import quantize_rows, quantize_rows_wide

# oneDNN's layout is optimized for about this many rows, but works for all.
_ROWS = 64


class PackedLinear:
    """W x + b with converted weights, or the plain product if torch or the CPU lacks support.

    Args:
        weight: W, shape (N, K).
        bias: b, shape (N,).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = weight
        self._bias = bias
        self._packed: Tensor | None = None
        if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
            try:
                with torch.no_grad():
                    packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS)
                    self._product(torch.zeros(1, weight.shape[1]), packed, None)
            except (RuntimeError, NotImplementedError):
                return
            self._packed = packed

    def __call__(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """Return W x + b, or W x + b + plus.

        Shape:
            x (n, K), plus (n, N) -> (n, N)
        """
        if self._packed is not None:
            return self._product(x, self._packed, plus)
        if plus is not None and self._bias is None:
            return torch.addmm(plus, x, self._weight.t())
        product = F.linear(x, self._weight, self._bias)
        return product if plus is None else product.add_(plus)

    def _product(self, x: Tensor, packed: Tensor, plus: Tensor | None) -> Tensor:
        out: Tensor
        if plus is None:
            out = torch.ops.mkldnn._linear_pointwise(x, packed, self._bias, "none", [], "")
        else:
            out = torch.ops.mkldnn._linear_pointwise.binary(x, plus, packed, self._bias, "add")
        return out


class Int8Linear:
    """W x + b with both factors of the product quantized to int8.

    Args:
        weight: W, shape (N, K).
        bias: b, shape (N,).
        wide: Quantize x to 16 bits, in two halves of int8.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, wide: bool = False) -> None:
        self._weight, self._scale = quantize_rows(weight.detach())
        self._bias = bias
        self._wide = wide

    def __call__(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """Return W x + b, or W x + plus.

        Shape:
            x (n, K), plus (n, N) -> (n, N)
        """
        if self._wide:
            high, low, scale = quantize_rows_wide(x)
            sums = torch._int_mm(high, self._weight.t()).float().mul_(256.0)  # (n, N)
            sums += torch._int_mm(low, self._weight.t())
        else:
            rounded, scale = quantize_rows(x)
            sums = torch._int_mm(rounded, self._weight.t()).float()  # (n, N)
        sums.mul_(self._scale)
        added = self._bias if plus is None else plus
        if added is None:
            return sums.mul_(scale.unsqueeze(1))
        return torch.addcmul(added, sums, scale.unsqueeze(1))
