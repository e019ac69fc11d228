"""The sampled softmax of an entire batch: loss and gradients in one pass over the logits.

The logits (n, K) are by far the largest tensor of a training step. They are computed once, in the
data type of the matrix products. Their gradient overwrites them and is freed after the two products
that need it, so no tensor of this size is stored for a backward pass.

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
    logits_ptr,  # (n, K): products, replaced by the gradient of the mean loss
    correction_ptr,  # (K,): bias - log expected count
    words_ptr,  # (K,)
    target_logits_ptr,  # (n,): logit of the target, replaced by its gradient
    targets_ptr,  # (n,)
    loss_ptr,  # (n,)
    scale,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < K
    target = tl.load(targets_ptr + row)
    target_logit = tl.load(target_logits_ptr + row)
    logits = tl.load(logits_ptr + row * K + cols, mask, 0.0).to(tl.float32)
    logits += tl.load(correction_ptr + cols, mask, 0.0)
    is_negative = mask & (tl.load(words_ptr + cols, mask, 0) != target)
    logits = tl.where(is_negative, logits, -float("inf"))
    largest = tl.maximum(tl.max(logits, 0), target_logit)
    p = tl.exp(logits - largest)
    p_target = tl.exp(target_logit - largest)
    total = tl.sum(p, 0) + p_target
    tl.store(loss_ptr + row, tl.log(total) + largest - target_logit)
    tl.store(target_logits_ptr + row, (p_target / total - 1.0) * scale)
    gradient = (p / total * scale).to(logits_ptr.dtype.element_ty)
    tl.store(logits_ptr + row * K + cols, gradient, mask)


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
        head_gradients: The gradients of "weight" (V, D) and "bias" (V,), in float32, to which the
            new gradients are added.
        share: Factor by which all gradients are multiplied.

    Returns:
        The loss, a scalar, and the gradient of `h`, shape (n, D).
    """
    n, words = len(h), sample.words
    sampled_weight = weight[words].to(h.dtype)  # (K, D)
    correction = bias[words] - sample.log_expected(words)
    true_weight = weight[targets]  # (n, D) float32
    true_logits = (h.float() * true_weight).sum(-1) + bias[targets] - sample.log_expected(targets)
    logits = h @ sampled_weight.t()  # (n, K)
    losses = torch.empty_like(true_logits)
    _softmax_rows[(n,)](
        logits,
        correction,
        words,
        true_logits,
        targets,
        losses,
        share / n,
        K=len(words),
        BLOCK=triton.next_power_of_2(len(words)),
        num_warps=8,
    )
    # `logits` and `true_logits` now contain gradients.
    d_h = torch.addcmul((logits @ sampled_weight).float(), true_logits.unsqueeze(1), true_weight)
    d_weight, d_bias = head_gradients["weight"], head_gradients["bias"]
    d_weight.index_add_(0, words, (logits.t() @ h).float())
    d_bias.index_add_(0, words, logits.sum(0, dtype=torch.float32))
    d_weight.index_add_(0, targets, true_logits.unsqueeze(1) * h.float())
    d_bias.index_add_(0, targets, true_logits)
    return losses.mean(), d_h.to(h.dtype)
