"""The optimizer, which updates the biLM and only those rows of the head that a step uses.

A step uses only the target words and the negatives, for example 20,000 of 150,000 rows. The
gradient of all other rows is zero. With Adagrad, skipping these rows is exact, because a zero
gradient changes nothing. With AdamW, the moments of a row are not updated until the row is used
again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from elmokit.model.softmax import LMHead
from elmokit.settings import CountOrZero, Fraction, NonNegative, Positive, Probability, Settings

Kind = Literal["adamw", "adagrad"]
Decay = Literal["cosine", "linear"]


class OptimizerConfig(Settings):
    """The optimizer and its learning-rate schedule.

    Attributes:
        kind: "adamw", or "adagrad" (used in the paper, with a learning rate of 0.2; accumulators
            start at 1).
        learning_rate: Peak learning rate.
        warmup: Number of warm-up steps, in which the learning rate increases from 0.
        decay: Decay of the learning rate after the warm-up, "cosine" or "linear".
        final: Learning rate at the end, as a fraction of the peak. 1: no decay.
        clip: Maximum gradient norm. Larger gradients are scaled down.
        skip_norm: After the warm-up, gradients whose norm exceeds this value are replaced with
            zero. Clipping is not sufficient for exploding gradients, because AdamW is invariant to
            their scale. The default is far above normal values (see `gradient_norm` in
            metrics.jsonl). During the warm-up, large gradients are normal.
        beta1: Decay rate of the first moment (AdamW).
        beta2: Decay rate of the second moment (AdamW).
        epsilon: Added to the denominator (AdamW and Adagrad).
        weight_decay: Weight decay (AdamW).
        head_steps: Number of initial steps in which only the head is trained, for a new head on a
            trained biLM. The main schedule starts after these steps.
        head_rate: Peak learning rate during the first `head_steps` steps.
    """

    kind: Kind = "adamw"
    learning_rate: Positive = 1.2e-3
    warmup: CountOrZero = 400
    decay: Decay = "cosine"
    final: Probability = 0.02
    clip: Positive = 10.0
    skip_norm: Positive = 10_000.0
    beta1: Fraction = 0.9
    beta2: Fraction = 0.999
    epsilon: NonNegative = 1e-8
    weight_decay: NonNegative = 0.0
    head_steps: CountOrZero = 0
    head_rate: Positive = 4e-3

    def learning_rate_at(self, step: int, total: int) -> float:
        """Return the learning rate of step `step` (from 0) in a run of `total` steps."""
        if step < self.head_steps:
            return self.head_rate * self._schedule(step, self.head_steps)
        return self.learning_rate * self._schedule(step - self.head_steps, total - self.head_steps)

    def _schedule(self, step: int, total: int) -> float:
        """Return the learning rate as a fraction of its peak."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.final == 1.0 or total <= self.warmup:
            return 1.0
        elapsed = min(1.0, (step - self.warmup) / (total - self.warmup))
        cosine = 0.5 * (1.0 + math.cos(math.pi * elapsed))
        factor = 1.0 - elapsed if self.decay == "linear" else cosine
        return self.final + (1.0 - self.final) * factor


class Optimizer:
    """AdamW or Adagrad for the tensors of a biLM and the rows of its head.

    `step` does not synchronize with the device, so it can be part of a CUDA graph.

    Args:
        tensors: The tensors to train, by name.
        head: The LM head. A step updates only the rows that were used.
        config: The settings.
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], head: LMHead, config: OptimizerConfig
    ) -> None:
        self.config = config
        self.tensors = dict(tensors)
        self.head = {"weight": head.weight.data, "bias": head.bias.data}
        device = head.weight.device
        self.count = torch.zeros((), device=device)  # number of steps
        self._seen = torch.zeros(len(head.bias), dtype=torch.bool, device=device)
        initial = {"adamw": {"mean": 0.0, "square": 0.0}, "adagrad": {"square": 1.0}}[config.kind]
        self.moments, self.row_moments = (
            {
                kind: {name: torch.full_like(t, value) for name, t in tensors.items()}
                for kind, value in initial.items()
            }
            for tensors in (self.tensors, self.head)
        )

    @torch.no_grad()
    def step(
        self,
        rate: Tensor,
        gradients: Sequence[Tensor],
        head_gradients: Mapping[str, Tensor],
        words: Sequence[Tensor],
        n_targets: Tensor | None = None,
    ) -> Tensor:
        """Update the weights.

        Args:
            rate: Learning rate, a scalar tensor.
            gradients: Gradients of the tensors, in the same order. They are modified in place.
                Empty in the first `head_steps` steps, in which the tensors are frozen.
            head_gradients: Gradients of the head, by name. The rows in `words` are set to zero.
            words: Lists of the rows of the head that have a gradient. A list must not contain
                duplicates, except for the padding of the first list.
            n_targets: Length of the first list without padding. Default: the list has no padding.

        Returns:
            The norm of the complete gradient before clipping, a scalar tensor.
        """
        self.count += 1
        rows = torch.cat(list(words))
        is_first = self._is_first(words, n_targets)
        row_gradients = {n: g[rows] for n, g in head_gradients.items()}
        unique = [g * is_first.view(-1, *[1] * (g.dim() - 1)) for g in row_gradients.values()]
        norms = torch._foreach_norm([*gradients, *unique])
        norm: Tensor = torch.linalg.vector_norm(torch.stack(list(norms)))
        scale = self._scale(norm)
        for gradient in [*gradients, *row_gradients.values()]:
            gradient.nan_to_num_(0.0, 0.0, 0.0)
        if gradients:
            torch._foreach_mul_(list(gradients), scale)
            self._dense_step(rate, list(gradients))
        for name, gradient in row_gradients.items():
            self._row_step(rate, name, rows, gradient * scale)
            head_gradients[name].index_fill_(0, rows, 0.0)
        return norm

    def head_moments(self) -> dict[str, Tensor]:
        """Return the moments of the head, by kind of moment and parameter name."""
        return {
            f"{kind}.head.{name}": tensor
            for kind, tensors in self.row_moments.items()
            for name, tensor in tensors.items()
        }

    def _scale(self, norm: Tensor) -> Tensor:
        """Return the factor for clipping a gradient, or 0 if the gradient is skipped."""
        c = self.config
        in_warmup = self.count <= c.head_steps + c.warmup
        is_used = norm.isfinite() & (in_warmup | (norm <= c.skip_norm))
        return torch.where(is_used, torch.clamp(c.clip / (norm + 1e-6), max=1.0), 0.0)

    def _is_first(self, words: Sequence[Tensor], n_targets: Tensor | None) -> Tensor:
        """Return a mask of the first occurrence of each word in the concatenated lists."""
        masks = []
        for i, indices in enumerate(words):
            if i == 0 and n_targets is not None:
                masks.append(torch.arange(len(indices), device=indices.device) < n_targets)
            else:
                masks.append(~self._seen[indices])
            self._seen.index_fill_(0, indices, True)
        for indices in words:
            self._seen.index_fill_(0, indices, False)
        return torch.cat(masks)

    def _dense_step(self, rate: Tensor, gradients: list[Tensor]) -> None:
        c = self.config
        tensors, square = list(self.tensors.values()), list(self.moments["square"].values())
        if c.kind == "adagrad":
            torch._foreach_addcmul_(square, gradients, gradients)
            root = torch._foreach_sqrt(square)
            torch._foreach_add_(root, c.epsilon)
            torch._foreach_div_(gradients, root)
            torch._foreach_mul_(gradients, rate)
            torch._foreach_sub_(tensors, gradients)
            return
        # The bias correction starts after the steps that train only the head.
        count = self.count - c.head_steps if c.head_steps else self.count
        torch._fused_adamw_(
            tensors,
            gradients,
            list(self.moments["mean"].values()),
            square,
            [],
            [count] * len(tensors),
            lr=rate,
            beta1=c.beta1,
            beta2=c.beta2,
            weight_decay=c.weight_decay,
            eps=c.epsilon,
            amsgrad=False,
            maximize=False,
        )

    def _row_step(self, rate: Tensor, name: str, rows: Tensor, gradient: Tensor) -> None:
        # Duplicate rows get the same values, because all reads precede all writes.
        c = self.config
        weight, square = self.head[name], self.row_moments["square"][name]
        if c.kind == "adagrad":
            new_square = square[rows] + gradient * gradient
            change = gradient / (new_square.sqrt() + c.epsilon)
            new_weight = weight[rows] - rate * change
        else:
            mean = self.row_moments["mean"][name]
            new_mean = torch.lerp(mean[rows], gradient, 1 - c.beta1)
            new_square = torch.lerp(square[rows], gradient * gradient, 1 - c.beta2)
            root = (new_square / (1 - c.beta2**self.count)).sqrt() + c.epsilon
            change = new_mean / (1 - c.beta1**self.count) / root
            new_weight = weight[rows] * (1 - rate * c.weight_decay) - rate * change
            mean[rows] = new_mean
        square[rows] = new_square
        weight[rows] = new_weight
