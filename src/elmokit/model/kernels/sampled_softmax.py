"""The sampled softmax of a whole batch: loss and gradients in one pass over the logits.

The logits (n, K) are by far the largest tensor of a training step. They are computed once in the
dtype of the products, overwritten with the gradient of the mean loss, used in the two products that
need it, and freed; no tensor of that size is kept for a backward pass.

The reference implementation is `elmokit.model.softmax.LMHead.sampled_loss`.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl
from torch import Tensor

from elmokit.model.softmax import Sample


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


@torch.no_grad()
def sampled_loss(
    h: Tensor,
    targets: Tensor,
    weight: Tensor,
    bias: Tensor,
    sample: Sample,
    head_gradients: Mapping[str, Tensor],
    *,
    share: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Compute the mean sampled loss and the gradient of `share` times this loss.

    Args:
        h: The top layer of one direction, shape (n, D).
        targets: The words to predict, shape (n,).
        weight: The weight of the head, shape (V, D).
        bias: The bias of the head, shape (V,).
        sample: The negatives.
        head_gradients: The gradient is added to "weight" (V, D) and "bias" (V,), in float32.
        share: Factor of the gradient.

    Returns:
        The loss, a scalar, and the gradient of `h`, shape (n, D).
    """
    n, words = len(h), sample.words
    chosen = weight[words].to(h.dtype)  # (K, D)
    correction = bias[words] - sample.log_expected(words)
    at_target = weight[targets]  # (n, D) float32
    true = (h.float() * at_target).sum(-1) + bias[targets] - sample.log_expected(targets)
    logits = h @ chosen.t()  # (n, K)
    losses = torch.empty_like(true)
    _softmax_rows[(n,)](
        logits,
        correction,
        words,
        true,
        targets,
        losses,
        share / n,
        K=len(words),
        BLOCK=triton.next_power_of_2(len(words)),
        num_warps=8,
    )
    # `logits` and `true` now contain gradients.
    d_h = torch.addcmul((logits @ chosen).float(), true.unsqueeze(1), at_target)
    d_weight, d_bias = head_gradients["weight"], head_gradients["bias"]
    d_weight.index_add_(0, words, (logits.t() @ h).float())
    d_bias.index_add_(0, words, logits.sum(0, dtype=torch.float32))
    d_weight.index_add_(0, targets, true.unsqueeze(1) * h.float())
    d_bias.index_add_(0, targets, true)
    return losses.mean(), d_h.to(h.dtype)
