"""A linear probe: softmax regression on frozen vectors.

Each dimension is standardized, so that the same learning rate and penalty are suitable for all
layers. Standardization does not limit a linear classifier, which can undo it. The learning rate of
Adam is halved after each epoch in which the dev accuracy does not improve. Training stops after
several halvings and returns the weights with the best dev accuracy.
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
_PREDICTION_BATCH = 8192  # vectors


class LayerTable:
    """A table with one vector per token, computed on access from the layers of the token.

    Args:
        layers: h_{k,j} of all tokens, shape (N, L + 1, 2D).
        choice: How to combine the layers of a token.
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
    """Settings for training a probe.

    Attributes:
        l2: Penalty on the weights: l2 / 2 * |W|^2 is added to the loss.
        learning_rate: Initial learning rate of Adam.
        batch_size: Batch size in tokens.
        max_epochs: Maximum number of epochs.
        halvings: Maximum number of times that the learning rate is halved before training stops.
    """

    l2: float = 1e-5
    learning_rate: float = 5e-3
    batch_size: int = 1024
    max_epochs: int = 30
    halvings: int = 3


class Examples(NamedTuple):
    """Labeled tokens: rows of a table of vectors, and the class of each row.

    Attributes:
        vectors: The table, (N, D).
        rows: The row of each example, (n,).
        labels: The class of each example, (n,).
    """

    vectors: HalfArray | LayerTable
    rows: NDArray[np.int64]
    labels: NDArray[np.int64]

    def batches(
        self, size: int, order: NDArray[np.int64] | None = None
    ) -> Iterator[tuple[HalfArray, NDArray[np.int64]]]:
        """Yield the vectors (n, D) and classes (n,) of each batch, in the given order."""
        order = np.arange(len(self.rows)) if order is None else order
        for start in range(0, len(order), size):
            batch = order[start : start + size]
            yield self.vectors[self.rows[batch]], self.labels[batch]


@dataclass
class LinearProbe:
    """A trained probe.

    Attributes:
        weight: W, shape (classes, D).
        bias: b, shape (classes,).
        mean: The mean of each dimension, shape (D,).
        scale: The inverse standard deviation of each dimension, shape (D,).
        epochs: Number of training epochs.
        dev_accuracy: Accuracy on the dev examples.
    """

    weight: Tensor
    bias: Tensor
    mean: Tensor
    scale: Tensor
    epochs: int = 0
    dev_accuracy: float = 0.0

    def logits(self, vectors: HalfArray) -> Tensor:
        """Return the logits of the classes, shape (n, classes)."""
        x = torch.from_numpy(np.ascontiguousarray(vectors)).to(self.weight.device).float()
        return torch.addmm(self.bias, (x - self.mean) * self.scale, self.weight.T)

    def predict(self, examples: Examples) -> NDArray[np.int64]:
        """Return the class of each example, shape (n,)."""
        with torch.inference_mode():
            classes = [
                self.logits(vectors).argmax(dim=1).cpu().numpy()
                for vectors, _ in examples.batches(_PREDICTION_BATCH)
            ]
        return np.concatenate(classes)


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
        train: Training examples.
        dev: Examples for early stopping.
        n_classes: Number of classes.
        settings: The settings.
        seed: Random seed for the order of the examples. The initial weights are zero.
        device: Device to compute on.
    """
    settings = settings or ProbeSettings()
    mean, scale = _mean_and_scale(train)
    weight = torch.zeros(n_classes, len(mean), device=device, requires_grad=True)
    bias = torch.zeros(n_classes, device=device, requires_grad=True)
    probe = LinearProbe(weight, bias, mean.to(device), scale.to(device))
    adam = torch.optim.Adam([weight, bias], lr=settings.learning_rate)
    rng = np.random.default_rng(seed)
    best, n_halvings = (weight.detach().clone(), bias.detach().clone()), 0
    while probe.epochs < settings.max_epochs and n_halvings <= settings.halvings:
        for vectors, labels in train.batches(settings.batch_size, rng.permutation(len(train.rows))):
            loss = cross_entropy(probe.logits(vectors), torch.from_numpy(labels).to(device))
            loss = loss + settings.l2 / 2 * weight.square().sum()
            adam.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            adam.step()
        probe.epochs += 1
        accuracy = float((probe.predict(dev) == dev.labels).mean())
        if accuracy > probe.dev_accuracy:
            probe.dev_accuracy = accuracy
            best = (weight.detach().clone(), bias.detach().clone())
        else:
            n_halvings += 1
            for group in adam.param_groups:
                group["lr"] /= 2
    probe.weight, probe.bias = best
    return probe


def _mean_and_scale(examples: Examples) -> tuple[Tensor, Tensor]:
    """Return the mean and the inverse standard deviation of each dimension."""
    dim = examples.vectors.shape[1]
    total, squares = np.zeros(dim), np.zeros(dim)
    for vectors, _ in examples.batches(_PREDICTION_BATCH):
        x = vectors.astype(np.float64)
        total += x.sum(axis=0)
        squares += np.square(x).sum(axis=0)
    mean = total / len(examples.rows)
    deviation = np.sqrt(np.maximum(squares / len(examples.rows) - mean**2, 0))
    # Constant dimensions are not scaled.
    scale = 1 / np.where(deviation > 1e-6, deviation, 1)
    return torch.from_numpy(mean).float(), torch.from_numpy(scale).float()
