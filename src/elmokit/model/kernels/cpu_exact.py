"""The LSTM layer in float32 on a CPU: packed weights, gates in place.

The reference implementation is `elmokit.model.lstm.LstmLayer`; only the order of sums differs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from elmokit.model.bilm import BiLM
from elmokit.model.kernels.cpu_linear import PackedLinear
from elmokit.model.kernels.cpu_reader import CpuReader, pieces
from elmokit.model.lstm import FORGET_BIAS, LstmLayer

# Tokens whose input product W_x x is in memory at once. More would not fit into the CPU caches, and
# above 32 MiB the allocator would request new pages from the operating system every time.
_TOKENS_AT_ONCE = 256


class ExactLayer:
    """A float32 kernel for a layer."""

    def __init__(self, layer: LstmLayer) -> None:
        self.config = layer.config
        self._input = PackedLinear(sigmoids_first(layer.weight_input), bias_of(layer))
        self._recurrent = PackedLinear(sigmoids_first(layer.weight_recurrent))
        self._projection: PackedLinear | None = None
        if layer.weight_projection is not None:
            self._projection = PackedLinear(layer.weight_projection)

    def read(self, x: Tensor, active: list[int], cell: Tensor, hidden: Tensor) -> Tensor:
        """Read a packed batch; see `CpuLayer`."""
        out = torch.empty_like(x)
        start = 0
        for steps in pieces(active, _TOKENS_AT_ONCE):
            gates_x = self._input(x[start : start + sum(steps)])  # (tokens, 4H)
            for n, plus in zip(steps, torch.split(gates_x, steps), strict=True):
                gates = self._recurrent(hidden[:n], plus)
                h = gate(gates, cell[:n], self.config.cell_clip)
                if self._projection is not None:
                    h = self._projection(h)
                    if self.config.proj_clip is not None:
                        h.clamp_(-self.config.proj_clip, self.config.proj_clip)
                out[start : start + n] = h
                hidden[:n] = h
                start += n
        return out


def gate(gates: Tensor, cell: Tensor, clip: float | None) -> Tensor:
    """Update the cells by one step, in place, and return sigmoid(o) * tanh(c).

    Shape:
        gates (n, 4H) in the order i, f + 1, o, j, overwritten; cell (n, H) -> (n, H)
    """
    size = cell.shape[1]
    gates[:, : 3 * size].sigmoid_()
    i, f, o, j = gates.chunk(4, dim=1)
    cell.mul_(f).addcmul_(i, j.tanh_())
    if clip is not None:
        cell.clamp_(-clip, clip)
    return torch.tanh(cell).mul_(o)


def sigmoids_first(weight: Tensor) -> Tensor:
    """Reorder rows i, j, f, o to i, f, o, j, so that the three sigmoids are adjacent."""
    i, j, f, o = weight.detach().chunk(4, dim=0)
    return torch.cat([i, f, o, j])


def bias_of(layer: LstmLayer) -> Tensor:
    """Return the bias in that order, including the constant of the forget gate."""
    i, j, f, o = layer.bias.detach().chunk(4, dim=0)
    return torch.cat([i, f + FORGET_BIAS, o, j])


def exact_reader(bilm: BiLM) -> CpuReader:
    """Return the float32 kernel for a biLM."""
    return CpuReader(bilm, ExactLayer)
