"""The LSTM layer in int8 on a CPU, through torch's integer product.

Weights are rounded once, per output; activations as they come, per token: x_k and r_{k-1} to 8
bits, what is projected to 16 (`quantize.py` says why). Sums are integers and exact, so no token
depends on another in its batch; biases, gates and states are float32.

The reference implementation is `elmokit.model.lstm.LstmLayer`, with `quantize.py` around each
product.
"""

from __future__ import annotations

import torch
from torch import Tensor

from elmokit.model.bilm import BiLM
from elmokit.model.kernels.cpu_exact import bias_of, gate, sigmoids_first
from elmokit.model.kernels.cpu_reader import CpuReader, pieces
from elmokit.model.lstm import LstmLayer
from elmokit.model.quantize import quantize_rows, quantize_rows_wide

_TOKENS_AT_ONCE = 256


class Int8Linear:
    """W x (+ b or another tensor) with both sides rounded to int8, or x to two halves of int8."""

    def __init__(self, weight: Tensor, *, wide: bool = False) -> None:
        self._weight, self._scale = quantize_rows(weight.detach())
        self._wide = wide

    def __call__(self, x: Tensor, plus: Tensor | None = None) -> Tensor:
        """Return W x + plus.

        Shape:
            x (n, K), plus (n, N) or (N,) -> (n, N)
        """
        if self._wide:
            high, low, scale = quantize_rows_wide(x)
            sums = torch._int_mm(high, self._weight.t()).float().mul_(256.0)  # (n, N)
            sums += torch._int_mm(low, self._weight.t())
        else:
            rounded, scale = quantize_rows(x)
            sums = torch._int_mm(rounded, self._weight.t()).float()  # (n, N)
        sums.mul_(self._scale)
        if plus is None:
            return sums.mul_(scale.unsqueeze(1))
        return torch.addcmul(plus, sums, scale.unsqueeze(1))


class Int8Layer:
    """An int8 kernel for a layer."""

    def __init__(self, layer: LstmLayer) -> None:
        self.config = layer.config
        self._bias = bias_of(layer)
        self._input = Int8Linear(sigmoids_first(layer.weight_input))
        self._recurrent = Int8Linear(sigmoids_first(layer.weight_recurrent))
        self._projection: Int8Linear | None = None
        if layer.weight_projection is not None:
            self._projection = Int8Linear(layer.weight_projection, wide=True)

    def read(self, x: Tensor, active: list[int], cell: Tensor, hidden: Tensor) -> Tensor:
        """Read a packed batch; see `CpuLayer`."""
        out = torch.empty_like(x)
        start = 0
        for steps in pieces(active, _TOKENS_AT_ONCE):
            gates_x = self._input(x[start : start + sum(steps)], self._bias)  # (tokens, 4H)
            for n, plus in zip(steps, torch.split(gates_x, steps), strict=True):
                h = gate(self._recurrent(hidden[:n], plus), cell[:n], self.config.cell_clip)
                if self._projection is not None:
                    h = self._projection(h)
                    if self.config.proj_clip is not None:
                        h.clamp_(-self.config.proj_clip, self.config.proj_clip)
                out[start : start + n] = h
                hidden[:n] = h
                start += n
        return out


def int8_reader(bilm: BiLM) -> CpuReader:
    """Return the int8 kernel of a biLM."""
    return CpuReader(bilm, Int8Layer)
