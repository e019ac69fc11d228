"""Products with a weight matrix on a CPU, in float32 or int8.

In float32, the weights are converted to oneDNN's memory layout once. torch would convert them in
every call, and a conversion takes longer than a product with the few rows of a time step. For the
original model, conversion in advance reduces the time of a product with 8 rows by two thirds.

In int8, the weights are quantized once, with one scale per output, and the activations in every
call, with one scale per token. The sums are exact integers, so the result for a token does not
depend on its batch (see `quantize.py`).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.model.quantize import quantize_rows, quantize_rows_wide

# oneDNN optimizes the layout for this number of rows, but supports any number.
_ROWS = 64


class PackedLinear:
    """W x + b, with converted weights if torch and the CPU support them.

    Args:
        weight: W, shape (N, K).
        bias: b, shape (N,).
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self._weight = weight
        self._bias = bias
        self._packed: Tensor | None = None
        # For some shapes, oneDNN uses a different order of summation if there is only one row. Such
        # a row is duplicated, so that the result for a token does not depend on its batch.
        self._is_row_invariant = True
        if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
            try:
                with torch.no_grad():
                    packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), _ROWS)
                    double = self._product(weight.detach()[:1].repeat(2, 1), packed, None)
                    single = self._product(weight.detach()[:1], packed, None)
                    self._is_row_invariant = torch.equal(single, double[:1])
            except (RuntimeError, NotImplementedError):
                return
            self._packed = packed

    def __call__(self, x: Tensor, addend: Tensor | None = None) -> Tensor:
        """Return W x + b, or W x + b + addend.

        Shape:
            x (n, K), addend (n, N) -> (n, N)
        """
        if self._packed is not None:
            if len(x) > 1 or self._is_row_invariant:
                return self._product(x, self._packed, addend)
            addend = None if addend is None else addend.repeat(2, 1)
            return self._product(x.repeat(2, 1), self._packed, addend)[:1]
        if addend is not None and self._bias is None:
            return torch.addmm(addend, x, self._weight.t())
        product = F.linear(x, self._weight, self._bias)
        return product if addend is None else product.add_(addend)

    def _product(self, x: Tensor, packed: Tensor, addend: Tensor | None) -> Tensor:
        out: Tensor
        if addend is None:
            out = torch.ops.mkldnn._linear_pointwise(x, packed, self._bias, "none", [], "")
        else:
            out = torch.ops.mkldnn._linear_pointwise.binary(x, addend, packed, self._bias, "add")
        return out


class Int8Linear:
    """W x + b with W and x quantized to int8.

    Args:
        weight: W, shape (N, K).
        bias: b, shape (N,).
        wide: Quantize x to 16 bits, as two int8 halves.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None = None, *, wide: bool = False) -> None:
        self._weight, self._scale = quantize_rows(weight.detach())
        self._bias = bias
        self._wide = wide

    def __call__(self, x: Tensor, addend: Tensor | None = None) -> Tensor:
        """Return W x + b. If `addend` is passed, it replaces b.

        Shape:
            x (n, K), addend (n, N) -> (n, N)
        """
        if self._wide:
            high, low, scale = quantize_rows_wide(x)
            sums = torch._int_mm(high, self._weight.t()).float().mul_(256.0)  # (n, N)
            sums += torch._int_mm(low, self._weight.t())
        else:
            quantized, scale = quantize_rows(x)
            sums = torch._int_mm(quantized, self._weight.t()).float()  # (n, N)
        sums.mul_(self._scale)
        addend = self._bias if addend is None else addend
        if addend is None:
            return sums.mul_(scale.unsqueeze(1))
        return torch.addcmul(addend, sums, scale.unsqueeze(1))
