"""Fused AdamW: each weight, its gradient and its averages are read from GPU memory once.

All weights of the biLM are updated, and their copies in the dtype of the products are written at
the same time. For the head, one program per row updates weight, bias and averages and clears the
gradient. The gradient norm for clipping is computed before.

The reference implementation is `elmokit.train.optimizer.Optimizer`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmokit.model.softmax import LMHead
from elmokit.train.optimizer import Optimizer, OptimizerConfig

_BLOCK = 1024


@triton.jit
def _change(w, g, mean, square, scalars_ptr):
    """Return AdamW's new weight and moments. A scale of 0 means that the gradient is not finite."""
    rate = tl.load(scalars_ptr)
    scale = tl.load(scalars_ptr + 1)
    missing_mean = tl.load(scalars_ptr + 2)
    missing_square = tl.load(scalars_ptr + 3)
    beta1 = tl.load(scalars_ptr + 4)
    beta2 = tl.load(scalars_ptr + 5)
    epsilon = tl.load(scalars_ptr + 6)
    decay = tl.load(scalars_ptr + 7)
    g = tl.where(scale > 0, g * scale, 0.0)
    mean = mean + (1 - beta1) * (g - mean)
    square = square + (1 - beta2) * (g * g - square)
    root = tl.sqrt(square / missing_square) + epsilon
    w = w * (1 - rate * decay) - rate * (mean / missing_mean) / root
    return w, mean, square


@triton.jit
def _change_all(
    w_ptr,
    g_ptr,
    mean_ptr,
    square_ptr,
    copy_ptr,
    scalars_ptr,
    n,
    COPY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    w, mean, square = _change(
        tl.load(w_ptr + at, inside, 0.0),
        tl.load(g_ptr + at, inside, 0.0).to(tl.float32),
        tl.load(mean_ptr + at, inside, 0.0),
        tl.load(square_ptr + at, inside, 0.0),
        scalars_ptr,
    )
    tl.store(w_ptr + at, w, inside)
    tl.store(mean_ptr + at, mean, inside)
    tl.store(square_ptr + at, square, inside)
    if COPY:
        tl.store(copy_ptr + at, w.to(copy_ptr.dtype.element_ty), inside)


@triton.jit
def _square_of_rows(
    rows_ptr,  # (n,)
    once_ptr,  # (n,): whether this is the first time a row is listed
    g_ptr,  # (V, D)
    g_bias_ptr,  # (V,)
    sums_ptr,  # (n,)
    D: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    counts = tl.load(once_ptr + place).to(tl.float32)
    row = tl.load(rows_ptr + place)
    g = tl.load(g_ptr + row * D + cols, cols < D, 0.0)
    g_bias = tl.load(g_bias_ptr + row)
    tl.store(sums_ptr + place, counts * (tl.sum(g * g, 0) + g_bias * g_bias))


@triton.jit
def _change_rows(
    rows_ptr,  # (n,)
    once_ptr,  # (n,)
    w_ptr,  # (V, D)
    g_ptr,
    mean_ptr,
    square_ptr,
    w_bias_ptr,  # (V,)
    g_bias_ptr,
    mean_bias_ptr,
    square_bias_ptr,
    scalars_ptr,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
):
    place = tl.program_id(0).to(tl.int64)
    if tl.load(once_ptr + place) == 0:
        return
    row = tl.load(rows_ptr + place)
    cols = tl.arange(0, BLOCK)
    inside = cols < D
    at = row * D + cols
    w, mean, square = _change(
        tl.load(w_ptr + at, inside, 0.0),
        tl.load(g_ptr + at, inside, 0.0),
        tl.load(mean_ptr + at, inside, 0.0),
        tl.load(square_ptr + at, inside, 0.0),
        scalars_ptr,
    )
    tl.store(w_ptr + at, w, inside)
    tl.store(mean_ptr + at, mean, inside)
    tl.store(square_ptr + at, square, inside)
    tl.store(g_ptr + at, tl.zeros((BLOCK,), tl.float32), inside)
    w, mean, square = _change(
        tl.load(w_bias_ptr + row),
        tl.load(g_bias_ptr + row),
        tl.load(mean_bias_ptr + row),
        tl.load(square_bias_ptr + row),
        scalars_ptr,
    )
    tl.store(w_bias_ptr + row, w)
    tl.store(mean_bias_ptr + row, mean)
    tl.store(square_bias_ptr + row, square)
    tl.store(g_bias_ptr + row, 0.0)


class FusedAdamW(Optimizer):
    """A fused `Optimizer` for AdamW on a GPU.

    Args:
        tensors: The tensors to train, by name.
        head: The LM head.
        config: The settings.
        copies: Tensors with the same shapes and names in the dtype of the products, which are
            updated with the weights.
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        head: LMHead,
        config: OptimizerConfig,
        copies: Mapping[str, Tensor],
    ) -> None:
        assert config.kind == "adamw"
        super().__init__(tensors, head, config)
        self.copies = dict(copies)
        constants = [config.beta1, config.beta2, config.epsilon, config.weight_decay]
        self._constants = torch.tensor(constants, device=head.weight.device)

    @torch.no_grad()
    def step(
        self,
        rate: Tensor,
        gradients: Sequence[Tensor],
        head_gradients: Mapping[str, Tensor],
        words: Sequence[Tensor],
        n_targets: Tensor | None = None,
    ) -> Tensor:
        """Run `Optimizer.step`; the gradients may be in the dtype of the products."""
        self.count += 1
        rows, once = torch.cat(list(words)), self._once(words, n_targets)
        norm = self._norm(gradients, head_gradients, rows, once)
        scale = self._scale(norm)
        if gradients:
            # The bias correction starts after the steps that only train the head.
            scalars = self._scalars(rate, scale, self.count - self.config.head_steps)
            self._change_tensors(gradients, scalars)
        scalars = self._scalars(rate, scale, self.count)
        self._change_head(head_gradients, rows, once, scalars)
        return norm

    def _norm(
        self,
        gradients: Sequence[Tensor],
        head: Mapping[str, Tensor],
        rows: Tensor,
        once: Tensor,
    ) -> Tensor:
        squares = torch.empty(len(rows), device=rows.device)
        d = head["weight"].shape[1]
        _square_of_rows[(len(rows),)](
            rows,
            once,
            head["weight"],
            head["bias"],
            squares,
            D=d,
            BLOCK=triton.next_power_of_2(d),
        )
        norms = [squares.sum().sqrt()]
        for dtype in {g.dtype: None for g in gradients}:
            alike = [g for g in gradients if g.dtype == dtype]
            norms += torch._foreach_norm(alike, 2, dtype=torch.float32)
        norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        return norm

    def _scalars(self, rate: Tensor, scale: Tensor, count: Tensor) -> Tensor:
        c = self.config
        changing = torch.stack([rate, scale, 1 - c.beta1**count, 1 - c.beta2**count])
        return torch.cat([changing, self._constants])

    def _change_tensors(self, gradients: Sequence[Tensor], scalars: Tensor) -> None:
        for (name, w), g in zip(self.tensors.items(), gradients, strict=True):
            n = w.numel()
            _change_all[(triton.cdiv(n, _BLOCK),)](
                w,
                g,
                self.moments["mean"][name],
                self.moments["square"][name],
                self.copies.get(name, w),
                scalars,
                n,
                COPY=name in self.copies,
                BLOCK=_BLOCK,
            )

    def _change_head(
        self,
        gradients: Mapping[str, Tensor],
        rows: Tensor,
        once: Tensor,
        scalars: Tensor,
    ) -> None:
        mean, square = self.row_moments["mean"], self.row_moments["square"]
        d = self.head["weight"].shape[1]
        _change_rows[(len(rows),)](
            rows,
            once,
            self.head["weight"],
            gradients["weight"],
            mean["weight"],
            square["weight"],
            self.head["bias"],
            gradients["bias"],
            mean["bias"],
            square["bias"],
            scalars,
            D=d,
            BLOCK=triton.next_power_of_2(d),
        )
