"""A float32 product with weights in the memory layout of oneDNN.

torch converts the weights in every call. With the few rows of one time step, that takes longer than
the product: with converted weights, 8 rows of the original size take a third of the time.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

# The layout is optimized for about this many rows, but works for all.
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
