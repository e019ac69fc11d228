"""The sampled softmax of a whole batch: loss and gradients in one pass over the logits.

The logits (n, K) are by far the largest tensor of a training step. They are computed once in the
dtype of the products, overwritten with the gradient of the mean loss, used in the two products that
need it, and freed; no tensor of that size is kept for a backward pass.

The reference implementation is `elmokit.model.softmax.LMHead.sampled_loss`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmokit.model.softmax import Sample


class HeadGradient:
    """The gradient of the head, stored as dense tensors of which a step changes only some rows.

    Attributes:
        weight: (V, D) float32.
        bias: (V,) float32.
        words: Rows that were changed since the last `clear`; may contain duplicates.
    """

    def __init__(self, n_words: int, projection_dim: int, device: torch.device) -> None:
        self.weight = torch.zeros(n_words, projection_dim, device=device)
        self.bias = torch.zeros(n_words, device=device)
        self.words: list[Tensor] = []

    def add(self, words: Tensor, weight: Tensor, bias: Tensor) -> None:
        """Add gradients to some rows."""
        self.weight.index_add_(0, words, weight)
        self.bias.index_add_(0, words, bias)
        self.words.append(words)

    def clear(self) -> None:
        """Set the changed rows to zero."""
        for words in self.words:
            self.weight[words] = 0.0
            self.bias[words] = 0.0
        self.words = []


@triton.jit
def _softmax_rows(
    logits_ptr,  # (n, K): products in, gradient of the mean loss out
    correction_ptr,  # (K,): bias - log expected count
    words_ptr,  # (K,)
    true_ptr,  # (n,): the true word's logit in, its gradient out
    targets_ptr,  # (n,)
    loss_ptr,  # (n,)
    scale,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    inside = cols < K
    target = tl.load(targets_ptr + row)
    true = tl.load(true_ptr + row)
    logits = tl.load(logits_ptr + row * K + cols, inside, 0.0).to(tl.float32)
    logits += tl.load(correction_ptr + cols, inside, 0.0)
    counted = inside & (tl.load(words_ptr + cols, inside, 0) != target)
    logits = tl.where(counted, logits, -float("inf"))
    top = tl.maximum(tl.max(logits, 0), true)
    p = tl.exp(logits - top)
    p_true = tl.exp(true - top)
    total = tl.sum(p, 0) + p_true
    tl.store(loss_ptr + row, tl.log(total) + top - true)
    tl.store(true_ptr + row, (p_true / total - 1.0) * scale)
    gradient = (p / total * scale).to(logits_ptr.dtype.element_ty)
    tl.store(logits_ptr + row * K + cols, gradient, inside)


class _SampledLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        h: Tensor,
        targets: Tensor,
        weight: Tensor,
        bias: Tensor,
        sample: Sample,
        gradient: HeadGradient,
        share: float,
    ) -> Tensor:
        n, words = len(h), sample.words
        chosen = weight[words].to(h.dtype)  # (K, D)
        correction = bias[words] - sample.log_expected(words)
        at_target = weight[targets]  # (n, D) float32
        true = (h.float() * at_target).sum(-1) + bias[targets] - sample.log_expected(targets)
        logits = h @ chosen.t()  # (n, K)
        losses = torch.empty_like(true)
        scale = share / n
        _softmax_rows[(n,)](
            logits,
            correction,
            words,
            true,
            targets,
            losses,
            scale,
            K=len(words),
            BLOCK=triton.next_power_of_2(len(words)),
            num_warps=8,
        )
        # `logits` and `true` now hold gradients.
        d_h = torch.addcmul((logits @ chosen).float(), true.unsqueeze(1), at_target)
        gradient.add(words, (logits.t() @ h).float(), logits.sum(0, dtype=torch.float32))
        gradient.add(targets, true.unsqueeze(1) * h.float(), true)
        ctx.save_for_backward(d_h.to(h.dtype))
        return losses.mean()

    @staticmethod
    def backward(ctx: Any, d_loss: Tensor) -> Any:
        (d_h,) = ctx.saved_tensors
        return d_h, None, None, None, None, None, None


def sampled_loss(
    h: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    sample: Sample,
    gradient: HeadGradient,
    *,
    share: float = 1.0,
) -> Tensor:
    """Return the mean sampled loss, and immediately add its gradient for the head to `gradient`.

    The gradient is that of `share` times the mean loss: `backward` passes it to `h` unchanged, even
    if the loss is multiplied by a factor.

    Shape:
        h (n, D), targets (n,) -> ()
    """
    loss: Tensor = _SampledLoss.apply(
        h, targets, weight.detach(), bias.detach(), sample, gradient, share
    )
    return loss
