"""Attention, pooling, maxout and accuracy, compared with simple implementations."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from elmokit.tasks.classify import LabelPrediction
from elmokit.tasks.nn.layers import (
    AttentivePool,
    attend,
    masked_softmax,
    max_pool,
    mean_pool,
    min_pool,
)
from elmokit.tasks.sst5 import Maxout, Review, Sst5

LENGTHS = [5, 2, 1, 0]
MASK = torch.arange(5) < torch.tensor(LENGTHS).unsqueeze(1)


def padded(seed: int = 0) -> Tensor:
    """Return vectors of four texts; the padding has values that must not matter."""
    x = torch.randn(4, 5, 3, generator=torch.Generator().manual_seed(seed))
    return x.masked_fill(~MASK.unsqueeze(2), 1e4)


def test_pooling_equals_brute_force() -> None:
    x = padded()
    attentive = AttentivePool(3)
    for row, length in enumerate(LENGTHS):
        tokens = x[row, :length]
        found = [pool(x, MASK)[row] for pool in (max_pool, mean_pool, min_pool, attentive)]
        if length == 0:
            assert all(torch.equal(vector, torch.zeros(3)) for vector in found)
            continue
        scores = [math.exp(attentive.weigh(token).item()) for token in tokens]
        weighted = sum(s / sum(scores) * t for s, t in zip(scores, tokens, strict=True))
        wanted = [
            torch.stack([max(column) for column in tokens.T]),
            torch.stack([sum(column) / length for column in tokens.T]),
            torch.stack([min(column) for column in tokens.T]),
            weighted,
        ]
        for one, other in zip(found, wanted, strict=True):
            assert torch.allclose(one, torch.as_tensor(other), atol=1e-5)


def test_attention_equals_brute_force_and_ignores_padding() -> None:
    queries, keys = padded(1), padded(2)
    found = attend(queries, keys, MASK)
    for row, length in enumerate(LENGTHS):
        for k in range(length):
            scores = torch.stack([queries[row, k] @ keys[row, j] for j in range(length)])
            wanted = sum(p * keys[row, j] for j, p in enumerate((scores - scores.max()).softmax(0)))
            assert torch.allclose(found[row, k], torch.as_tensor(wanted), atol=1e-4)


def test_attention_over_nothing_gives_zero_and_finite_gradients() -> None:
    scores = torch.randn(2, 3, requires_grad=True)
    weights = masked_softmax(scores, torch.tensor([[True, False, True], [False] * 3]))
    assert weights[0].sum().item() == pytest.approx(1.0)
    assert weights[0, 1] == 0
    assert torch.equal(weights[1], torch.zeros(3))
    x = padded().requires_grad_()
    total = max_pool(x, MASK) + min_pool(x, MASK) + mean_pool(x, MASK)
    (total.sum() + weights[0, 0]).backward()  # type: ignore[no-untyped-call]
    for tensor in (scores, x):
        assert tensor.grad is not None
        assert torch.isfinite(tensor.grad).all()
    assert x.grad is not None
    assert not x.grad[~MASK].any()


def test_maxout_is_the_maximum_of_linear_functions() -> None:
    layer, x = Maxout(4, 3, 2), torch.randn(5, 4)
    weight = layer.linear.weight.reshape(3, 2, 4)
    bias = layer.linear.bias.reshape(3, 2)
    pieces = [x @ weight[:, p].T + bias[:, p] for p in range(2)]
    assert torch.allclose(layer(x), torch.maximum(*pieces), atol=1e-6)


def test_accuracy_overall_and_per_label() -> None:
    reviews = [Review(("x",), label) for label in "aabc"]
    found = Sst5().score(reviews, [LabelPrediction(label, {}) for label in "abbb"])
    assert (found["accuracy"], found["correct"], found["examples"]) == (50.0, 2, 4)
    assert found["labels"]["b"]["precision"] == pytest.approx(100 / 3)
    assert found["labels"]["a"]["recall"] == 50.0
    rare = found["labels"]["c"]
    assert (rare["f1"], rare["recall"], rare["gold"], rare["predicted"]) == (0.0, 0.0, 1, 0)
    assert Sst5().score([], [])["accuracy"] == 0.0
