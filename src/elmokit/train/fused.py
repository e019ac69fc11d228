"""AdamW as fused Triton kernels. An update reads each weight, gradient and moment only once.

The reference implementation is `elmokit.train.optimizer.Optimizer`. The kernel for the biLM also
writes copies of the weights in the dtype of the matrix products. The kernel for the head updates
only the rows that were used, and clears their gradients. The gradient norm is computed before the
update.
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
def _adamw(w, g, mean, square, scalars_ptr):
    """Return the new weight and moments. A scale of 0 replaces the gradient with zero."""
    rate = tl.load(scalars_ptr)
    scale = tl.load(scalars_ptr + 1)
    correction_mean = tl.load(scalars_ptr + 2)
    correction_square = tl.load(scalars_ptr + 3)
    beta1 = tl.load(scalars_ptr + 4)
    beta2 = tl.load(scalars_ptr + 5)
    epsilon = tl.load(scalars_ptr + 6)
    decay = tl.load(scalars_ptr + 7)
    g = tl.where(scale > 0, g * scale, 0.0)
    mean = mean + (1 - beta1) * (g - mean)
    square = square + (1 - beta2) * (g * g - square)
    root = tl.sqrt(square / correction_square) + epsilon
    w = w * (1 - rate * decay) - rate * (mean / correction_mean) / root
    return w, mean, square


@triton.jit
def _update_kernel(
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
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    w, mean, square = _adamw(
        tl.load(w_ptr + offsets, mask, 0.0),
        tl.load(g_ptr + offsets, mask, 0.0).to(tl.float32),
        tl.load(mean_ptr + offsets, mask, 0.0),
        tl.load(square_ptr + offsets, mask, 0.0),
        scalars_ptr,
    )
    tl.store(w_ptr + offsets, w, mask)
    tl.store(mean_ptr + offsets, mean, mask)
    tl.store(square_ptr + offsets, square, mask)
    if COPY:
        tl.store(copy_ptr + offsets, w.to(copy_ptr.dtype.element_ty), mask)


@triton.jit
def _squared_norms_kernel(
    rows_ptr,  # (n,)
    is_first_ptr,  # (n,): whether this is the first occurrence of the row in `rows`
    g_ptr,  # (V, D)
    g_bias_ptr,  # (V,)
    sums_ptr,  # (n,)
    D: tl.constexpr,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    factor = tl.load(is_first_ptr + pid).to(tl.float32)
    row = tl.load(rows_ptr + pid)
    g = tl.load(g_ptr + row * D + cols, cols < D, 0.0)
    g_bias = tl.load(g_bias_ptr + row)
    tl.store(sums_ptr + pid, factor * (tl.sum(g * g, 0) + g_bias * g_bias))


@triton.jit
def _update_rows_kernel(
    rows_ptr,  # (n,)
    is_first_ptr,  # (n,)
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
    pid = tl.program_id(0).to(tl.int64)
    if tl.load(is_first_ptr + pid) == 0:
        return
    row = tl.load(rows_ptr + pid)
    cols = tl.arange(0, BLOCK)
    mask = cols < D
    offsets = row * D + cols
    w, mean, square = _adamw(
        tl.load(w_ptr + offsets, mask, 0.0),
        tl.load(g_ptr + offsets, mask, 0.0),
        tl.load(mean_ptr + offsets, mask, 0.0),
        tl.load(square_ptr + offsets, mask, 0.0),
        scalars_ptr,
    )
    tl.store(w_ptr + offsets, w, mask)
    tl.store(mean_ptr + offsets, mean, mask)
    tl.store(square_ptr + offsets, square, mask)
    tl.store(g_ptr + offsets, tl.zeros((BLOCK,), tl.float32), mask)
    w, mean, square = _adamw(
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
    """A fast `Optimizer` for AdamW on a GPU.

    Args:
        tensors: The tensors to train, by name.
        head: The LM head.
        config: The settings.
        copies: Copies of some of the tensors in the dtype of the matrix products, by name. They are
            updated together with the tensors.
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
        """Update the weights; see `Optimizer.step`. Gradients can have different dtypes."""
        self.count += 1
        rows, is_first = torch.cat(list(words)), self._is_first(words, n_targets)
        norm = self._norm(gradients, head_gradients, rows, is_first)
        scale = self._scale(norm)
        if gradients:
            # The bias correction starts after the steps that train only the head.
            scalars = self._scalars(rate, scale, self.count - self.config.head_steps)
            self._update_tensors(gradients, scalars)
        scalars = self._scalars(rate, scale, self.count)
        self._update_head(head_gradients, rows, is_first, scalars)
        return norm

    def _norm(
        self,
        gradients: Sequence[Tensor],
        head: Mapping[str, Tensor],
        rows: Tensor,
        is_first: Tensor,
    ) -> Tensor:
        squares = torch.empty(len(rows), device=rows.device)
        d = head["weight"].shape[1]
        _squared_norms_kernel[(len(rows),)](
            rows,
            is_first,
            head["weight"],
            head["bias"],
            squares,
            D=d,
            BLOCK=triton.next_power_of_2(d),
        )
        norms = [squares.sum().sqrt()]
        for dtype in {g.dtype: None for g in gradients}:
            group = [g for g in gradients if g.dtype == dtype]
            norms += torch._foreach_norm(group, 2, dtype=torch.float32)
        norm: Tensor = torch.linalg.vector_norm(torch.stack(norms))
        return norm

    def _scalars(self, rate: Tensor, scale: Tensor, count: Tensor) -> Tensor:
        c = self.config
        variables = torch.stack([rate, scale, 1 - c.beta1**count, 1 - c.beta2**count])
        return torch.cat([variables, self._constants])

    def _update_tensors(self, gradients: Sequence[Tensor], scalars: Tensor) -> None:
        for (name, w), g in zip(self.tensors.items(), gradients, strict=True):
            n = w.numel()
            _update_kernel[(triton.cdiv(n, _BLOCK),)](
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

    def _update_head(
        self,
        gradients: Mapping[str, Tensor],
        rows: Tensor,
        is_first: Tensor,
        scalars: Tensor,
    ) -> None:
        mean, square = self.row_moments["mean"], self.row_moments["square"]
        d = self.head["weight"].shape[1]
        _update_rows_kernel[(len(rows),)](
            rows,
            is_first,
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
