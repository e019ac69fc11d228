"""The deep LSTM of He et al. (2017): alternating directions and highway connections.

A layer computes the following, where * is the elementwise product and d is a dropout mask (one per
sentence):

    o, r, i, f = sigmoid(W x_t + U h_{t-1} + b)          output, highway, input and forget gates
    j          = tanh(W_j x_t + U_j h_{t-1} + b_j)
    c_t        = f * c_{t-1} + i * j
    h_t        = d * (r * o * tanh(c_t) + (1 - r) * W_h x_t)

The first layer reads from left to right, the second reads the output of the first from right to
left, and so on. On a GPU, the run time depends on the number of small operations. Therefore, the
products with x are computed for all steps at once, and the backward pass is implemented manually:
the forward pass needs nine operations per step, and the backward pass needs five.

Notation: B sentences, T steps, H size of the state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

_GATES = 5  # o, r, i, f, j
_FORGET = 3  # the index of f


class AlternatingLstm(nn.Module):
    """A stack of highway LSTMs with alternating directions.

    Shape:
        x (B, T, input_dim), lengths of the B sentences -> (B, T, hidden)
    """

    def __init__(self, input_dim: int, hidden: int, n_layers: int, *, dropout: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            HighwayLstm(hidden if i else input_dim, hidden, dropout=dropout)
            for i in range(n_layers)
        )

    def forward(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        reversal = _reversed_indices(lengths, x.shape[1]).to(x.device)
        x = x.transpose(0, 1)
        for layer in self.layers:
            # The sentences are reversed instead of the direction, so that padding always comes last
            # and does not affect the tokens.
            x = _reverse(layer(x), reversal)
        if len(self.layers) % 2:
            x = _reverse(x, reversal)
        return x.transpose(0, 1)


class HighwayLstm(nn.Module):
    """One highway LSTM layer, which reads from left to right.

    Shape:
        (T, B, input_dim) -> (T, B, hidden)
    """

    def __init__(self, input_dim: int, hidden: int, *, dropout: float) -> None:
        super().__init__()
        self.p = dropout
        self.read = nn.Linear(input_dim, _GATES * hidden)
        self.carry = nn.Linear(input_dim, hidden, bias=False)
        self.recur = nn.Linear(hidden, _GATES * hidden, bias=False)
        for linear in (self.read, self.carry, self.recur):
            for gate in linear.weight.chunk(len(linear.weight) // hidden):
                nn.init.orthogonal_(gate)
        with torch.no_grad():
            self.read.bias.zero_()
            self.read.bias[_FORGET * hidden : (_FORGET + 1) * hidden] = 1.0  # open forget gates

    def forward(self, x: Tensor) -> Tensor:
        carried = self.carry(x)
        mask = None
        if self.training and self.p:
            mask = carried.new_empty(carried.shape[1:]).bernoulli_(1 - self.p) / (1 - self.p)
        h: Tensor = _Recurrence.apply(  # type: ignore[no-untyped-call]
            self.read(x), carried, self.recur.weight, mask
        )
        return h


class _Recurrence(torch.autograd.Function):
    """The recurrence of a layer, with a manual backward pass.

    Shape:
        gates (T, B, 5H), carried (T, B, H), weight (5H, H), mask (B, H) -> (T, B, H)
    """

    @staticmethod
    def forward(
        ctx: Any, gates: Tensor, carried: Tensor, weight: Tensor, mask: Tensor | None
    ) -> Tensor:
        size = carried.shape[2]
        gates = gates.clone()
        h, tanh_c = torch.empty_like(carried), torch.empty_like(carried)
        c = carried.new_zeros(len(carried) + 1, *carried.shape[1:])  # c[t + 1] belongs to step t
        recurrent, steps = weight.t(), gates.unbind()
        sigmoid_gates, tanh_gates = gates[..., :-size].unbind(), gates[..., -size:].unbind()
        o, r, i, f, j = (gate.unbind() for gate in gates.chunk(_GATES, dim=2))
        cs, tanhs, hs, carries = c.unbind(), tanh_c.unbind(), h.unbind(), carried.unbind()
        for t in range(len(hs)):
            if t:
                steps[t].addmm_(hs[t - 1], recurrent)
            sigmoid_gates[t].sigmoid_()
            tanh_gates[t].tanh_()
            torch.mul(f[t], cs[t], out=cs[t + 1]).addcmul_(i[t], j[t])
            torch.tanh(cs[t + 1], out=tanhs[t])
            torch.lerp(carries[t], o[t] * tanhs[t], r[t], out=hs[t])
            if mask is not None:
                hs[t].mul_(mask)
        ctx.save_for_backward(gates, carried, weight, mask, c, tanh_c, h)
        return h

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, d_out: Tensor) -> Any:
        gates, carried, weight, mask, c, tanh_c, h = ctx.saved_tensors
        o, r, i, f, j = gates.chunk(_GATES, dim=2)
        # First, compute the derivatives of h_t or c_t with respect to all gates, for all steps, ...
        dh_dc = o * r * (1 - tanh_c.square())
        d_gates = torch.cat(
            [
                r * tanh_c * o * (1 - o),
                (o * tanh_c - carried) * r * (1 - r),
                j * i * (1 - i),
                c[:-1] * f * (1 - f),
                i * (1 - j.square()),
            ],
            dim=2,
        )
        d_h = d_out.clone()
        per_gate = d_gates.view(*carried.shape[:2], _GATES, -1)
        by_h, by_c = per_gate[:, :, :2], per_gate[:, :, 2:]
        if mask is not None:
            dh_dc.mul_(mask)
            by_h.mul_(mask.unsqueeze(1))
        # ... then multiply them by the gradients of h_t and c_t, from the last step to the first.
        d_steps, by_hs, by_cs = d_gates.unbind(), by_h.unbind(), by_c.unbind()
        d_hs, dh_dcs, fs = d_h.unbind(), dh_dc.unbind(), f.unbind()
        d_c = torch.zeros_like(d_hs[0])
        for t in reversed(range(len(d_hs))):
            if t + 1 < len(d_hs):
                d_hs[t].addmm_(d_steps[t + 1], weight)
                d_c.mul_(fs[t + 1])
            d_c.addcmul_(d_hs[t], dh_dcs[t])
            by_hs[t].mul_(d_hs[t].unsqueeze(1))
            by_cs[t].mul_(d_c.unsqueeze(1))
        d_weight = d_gates[1:].flatten(0, 1).t() @ h[:-1].flatten(0, 1)
        d_carried = d_h * (1 - r)
        if mask is not None:
            d_carried *= mask
        return d_gates, d_carried, d_weight, None


def _reversed_indices(lengths: Sequence[int], longest: int) -> Tensor:
    """Return the indices that reverse each sentence, (T, B); padding stays in place."""
    position, length = torch.arange(longest).unsqueeze(1), torch.tensor(lengths)
    return torch.where(position < length, length - 1 - position, position)


def _reverse(x: Tensor, reversal: Tensor) -> Tensor:
    return x.gather(0, reversal.unsqueeze(2).expand_as(x))
