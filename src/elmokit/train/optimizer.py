"""The optimizer: updates the whole biLM, but only those rows of the head that a step has used.

A step uses the target words and the negatives, some 20,000 of 150,000; the gradient of all other
rows of the head is zero. With Adagrad, a zero gradient changes nothing, so skipping those rows
is exact; with Adam, their averages are not updated until the word is used again.
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
        kind: "adagrad" as in the paper (0.2, accumulators start at 1), or "adamw".
        learning_rate: Peak learning rate.
        warmup: Number of warm-up steps, in which the rate rises from 0.
        decay: Decay of the rate after the warm-up: "cosine" or "linear".
        final: Fraction of the peak rate at the end; 1 keeps the rate constant.
        clip: Maximum norm of the complete gradient; a larger gradient is scaled down.
        skip_norm: After the warm-up, a gradient with a larger norm is replaced by zero, because
            clipping limits only its size, which Adam divides out again. The default is far above
            the norms of training that works; lower it if gradients explode (see `gradient_norm` in
            metrics.jsonl). Large gradients are normal in the warm-up.
        beta1: For AdamW.
        beta2: For AdamW.
        epsilon: For AdamW and Adagrad.
        weight_decay: For AdamW.
        head_steps: Number of first steps that only train the head, for a new head on a trained
            biLM; the main schedule starts after them.
        head_rate: Peak learning rate of those steps.
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

    def rate(self, step: int, total: int) -> float:
        """Return the learning rate of a step, counted from 0, of `total` steps."""
        if step < self.head_steps:
            return self.head_rate * self._share(step, self.head_steps)
        return self.learning_rate * self._share(step - self.head_steps, total - self.head_steps)

    def _share(self, step: int, total: int) -> float:
        """Return the rate as a fraction of its peak."""
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.final == 1.0 or total <= self.warmup:
            return 1.0
        done = min(1.0, (step - self.warmup) / (total - self.warmup))
        left = 1.0 - done if self.decay == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
        return self.final + (1.0 - self.final) * left


class Optimizer:
    """Adagrad or AdamW over the tensors of a biLM and the rows of its head.

    `step` does not wait for the device or branch on values, so that it can be part of a CUDA graph.

    Args:
        tensors: The tensors to train, by name.
        head: The LM head; a step updates only some of its rows.
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
        start = {"adamw": {"mean": 0.0, "square": 0.0}, "adagrad": {"square": 1.0}}[config.kind]
        self.moments: dict[str, dict[str, Tensor]] = {
            kind: {name: torch.full_like(t, value) for name, t in self.tensors.items()}
            for kind, value in start.items()
        }
        self.row_moments: dict[str, dict[str, Tensor]] = {
            kind: {name: torch.full_like(t, value) for name, t in self.head.items()}
            for kind, value in start.items()
        }

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
            gradients: Gradients of the tensors, in their order; they are scaled in place. Empty in
                the first `head_steps` steps, in which the tensors are frozen.
            head_gradients: Gradients of the head, by name; the rows in `words` are cleared.
            words: Rows of the head with a gradient: several lists, each without duplicates.
            n_targets: Length of the first list, if it is padded with duplicates.

        Returns:
            The norm of the complete gradient before clipping, a scalar tensor.
        """
        self.count += 1
        rows = torch.cat(list(words))
        once = self._once(words, n_targets)
        row_gradients = {n: g[rows] for n, g in head_gradients.items()}
        counted = [g * once.view(-1, *[1] * (g.dim() - 1)) for g in row_gradients.values()]
        norms = torch._foreach_norm([*gradients, *counted])
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
        """Return the moments of the head by name."""
        return {
            f"{kind}.head.{name}": tensor
            for kind, tensors in self.row_moments.items()
            for name, tensor in tensors.items()
        }

    def _scale(self, norm: Tensor) -> Tensor:
        """Return the factor of a gradient: at most 1, and 0 for a gradient that is skipped."""
        c = self.config
        in_warmup = self.count <= c.head_steps + c.warmup
        used = norm.isfinite() & (in_warmup | (norm <= c.skip_norm))
        return torch.where(used, torch.clamp(c.clip / (norm + 1e-6), max=1.0), 0.0)

    def _once(self, words: Sequence[Tensor], n_targets: Tensor | None) -> Tensor:
        """Mark the first occurrence of each word among several lists."""
        marks = []
        for number, part in enumerate(words):
            if number == 0 and n_targets is not None:
                marks.append(torch.arange(len(part), device=part.device) < n_targets)
            else:
                marks.append(~self._seen[part])
            self._seen.index_fill_(0, part, True)
        for part in words:
            self._seen.index_fill_(0, part, False)
        return torch.cat(marks)

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
        # The bias correction starts after the steps that only train the head.
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
        # A row that is listed twice is computed twice from the same values. Writing it twice is
        # harmless if everything is read before anything is written.
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
