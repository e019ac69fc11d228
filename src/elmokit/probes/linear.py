"""A linear probe: softmax regression on vectors that are not changed.

The vectors are scaled to mean 0 and deviation 1 per number, which a linear classifier can undo, so
that one learning rate and one penalty fit all layers. Adam goes through the training tokens in
batches; whenever accuracy on the development tokens did not rise its rate is halved, and after some
halvings it ends. The weights that were best there are kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from elmokit.embed.layer_choice import LayerChoice

HalfArray = NDArray[np.float16]
_BLOCK = 8192


class LayerTable:
    """One vector per token, computed from a table of layers when rows are read.

    Args:
        layers: h_{k,j} of all tokens, shape (N, L + 1, 2D).
        choice: Which vector to make of the layers of a token.
    """

    def __init__(self, layers: HalfArray, choice: LayerChoice) -> None:
        self._layers = layers
        self._choice = choice
        self.shape = (len(layers), choice.dim(layers.shape[2]))

    def __getitem__(self, rows: NDArray[np.int64]) -> HalfArray:
        if (j := self._choice.number) is not None:
            layer: HalfArray = self._layers[rows, j]
            return layer
        layers = self._layers[rows].transpose(1, 0, 2).astype(np.float32)
        return self._choice.apply(layers).astype(np.float16)


@dataclass(frozen=True)
class ProbeSettings:
    """How a probe is trained.

    Attributes:
        l2: Penalty on the weights: l2 / 2 * |W|^2 is added to the loss.
        learning_rate: Of Adam, at the start.
        batch: Tokens per step.
        max_epochs: Go through the training tokens so often at most.
        halvings: End after the learning rate was halved so often.
    """

    l2: float = 1e-5
    learning_rate: float = 5e-3
    batch: int = 1024
    max_epochs: int = 30
    halvings: int = 3


class Examples(NamedTuple):
    """Labeled tokens: the rows of a table of vectors, and the class of each.

    Attributes:
        vectors: A table (N, D).
        rows: The rows that count, (n,).
        labels: Their classes, (n,); a class that no probe knows is never right.
    """

    vectors: HalfArray | LayerTable
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]

    def batches(
        self, size: int, order: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[HalfArray, NDArray[np.int64]]]:
        """Yield vectors (n, D) and classes (n,) of the examples, in order or in a given order."""
        places = np.arange(len(self.rows)) if order is None else order
        for first in range(0, len(places), size):
            chosen = places[first : first + size]
            yield self.vectors[self.rows[chosen]], self.labels[chosen]


@dataclass
class LinearProbe:
    """A trained probe.

    Attributes:
        weight: W, shape (classes, D).
        bias: b, shape (classes,).
        mean: What is taken from each number of a vector, shape (D,).
        scale: What each is multiplied with then, shape (D,).
        epochs: How often it went through the training tokens.
        dev_accuracy: Right answers on the development tokens.
    """

    weight: Tensor
    bias: Tensor
    mean: Tensor
    scale: Tensor
    epochs: int = 0
    dev_accuracy: float = 0.0

    def logits(self, vectors: HalfArray) -> Tensor:
        """Return the scores of the classes, shape (n, classes)."""
        x = torch.from_numpy(np.ascontiguousarray(vectors)).to(self.weight.device).float()
        return torch.addmm(self.bias, (x - self.mean) * self.scale, self.weight.T)

    def predict(self, examples: Examples) -> NDArray[np.int64]:
        """Return the class of each example, shape (n,)."""
        with torch.inference_mode():
            found = [
                self.logits(vectors).argmax(dim=1).cpu().numpy()
                for vectors, _ in examples.batches(_BLOCK)
            ]
        return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def train_probe(
    train: Examples,
    dev: Examples,
    n_classes: int,
    *,
    settings: ProbeSettings | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> LinearProbe:
    """Train a probe.

    Args:
        train: What it learns from.
        dev: What tells it when to stop.
        n_classes: Classes 0, ..., n_classes - 1.
        settings: How; see `ProbeSettings`.
        seed: Of the order of the batches, the only thing left to chance: weights start at zero.
        device: Where.
    """
    settings = settings or ProbeSettings()
    mean, scale = _moments(train)
    weight = torch.zeros(n_classes, len(mean), device=device, requires_grad=True)
    bias = torch.zeros(n_classes, device=device, requires_grad=True)
    probe = LinearProbe(weight, bias, mean.to(device), scale.to(device))
    adam = torch.optim.Adam([weight, bias], lr=settings.learning_rate)
    draw = np.random.default_rng(seed)
    best, halved = (weight.detach().clone(), bias.detach().clone()), 0
    while probe.epochs < settings.max_epochs and halved <= settings.halvings:
        for vectors, labels in train.batches(settings.batch, draw.permutation(len(train.rows))):
            loss = cross_entropy(probe.logits(vectors), torch.from_numpy(labels).to(device))
            loss = loss + settings.l2 / 2 * weight.square().sum()
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
        probe.epochs += 1
        accuracy = float((probe.predict(dev) == dev.labels).mean()) if len(dev.rows) else 0.0
        if accuracy > probe.dev_accuracy:
            probe.dev_accuracy = accuracy
            best = (weight.detach().clone(), bias.detach().clone())
        else:
            halved += 1
            for group in adam.param_groups:
                group["lr"] /= 2
    probe.weight, probe.bias = best
    return probe


def _moments(examples: Examples) -> tuple[Tensor, Tensor]:
    """Return the mean of each number over the examples, and one over its deviation."""
    dim = examples.vectors.shape[1]
    total, squares = np.zeros(dim), np.zeros(dim)
    for vectors, _ in examples.batches(_BLOCK):
        x = vectors.astype(np.float64)
        total += x.sum(axis=0)
        squares += np.square(x).sum(axis=0)
    mean = total / len(examples.rows)
    deviation = np.sqrt(np.maximum(squares / len(examples.rows) - mean**2, 0))
    scale = 1 / np.where(deviation > 1e-6, deviation, 1)  # a number that never changes says nothing
    return torch.from_numpy(mean).float(), torch.from_numpy(scale).float()
