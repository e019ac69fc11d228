"""Coreference: spans, antecedents and the loss, compared with explicit computations."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from torch import Tensor

from elmokit.tasks.coref_model import gold_cluster_ids
from elmokit.tasks.nn import spans as pairing
from elmokit.tasks.nn.spans import (
    PairScorer,
    SpanEncoder,
    all_spans,
    antecedents,
    keep_best,
    marginal_loss,
)
from tests.tasks.coref.conftest import CPU


@hypothesis_settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 7), max_size=4), st.integers(1, 4))
def test_spans_do_not_cross_sentences(lengths: list[int], width: int) -> None:
    wanted, first = [], 0
    for length in lengths:
        wanted += [
            (first + start, first + end)
            for start in range(length)
            for end in range(start + 1, length + 1)
            if end - start <= width
        ]
        first += length
    assert list(zip(*(t.tolist() for t in all_spans(lengths, width)), strict=True)) == wanted


@hypothesis_settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(0, 30), st.randoms())
def test_best_spans_that_do_not_cross(lengths: list[int], n: int, draw: random.Random) -> None:
    starts, ends = all_spans(lengths, 5)
    order = list(range(len(starts)))
    draw.shuffle(order)
    spans = list(zip(starts.tolist(), ends.tolist(), strict=True))

    def cross(one: int, other: int) -> bool:
        (a, b), (c, d) = spans[one], spans[other]
        return a < c < b < d or c < a < d < b

    wanted: list[int] = []
    for number in order:
        if len(wanted) < n and not any(cross(number, other) for other in wanted):
            wanted.append(number)
    assert keep_best(starts, ends, order, n) == sorted(wanted)


def test_span_vector() -> None:
    torch.manual_seed(0)
    encode, h, x = SpanEncoder(6, 5, 3, 2), torch.randn(8, 6), torch.randn(8, 5)
    starts, ends = all_spans([5, 3], 3)
    for g, start, end in zip(encode(h, x, starts, ends), starts, ends, strict=True):
        weights = encode.attend(h[start:end]).softmax(dim=0)
        head = (weights * x[start:end]).sum(dim=0)
        wanted = [h[start], h[end - 1], head, encode.widths.weight[end - start - 1]]
        assert torch.allclose(g, torch.cat(wanted), atol=1e-6)


# ------------------------------------------------------------------------------------ antecedents


def test_candidates_are_the_nearest_preceding_spans() -> None:
    index, there = antecedents(5, 3, CPU)
    found = [row[on].tolist() for row, on in zip(index, there, strict=True)]
    assert found == [[], [0], [1, 0], [2, 1, 0], [3, 2, 1]]
    assert antecedents(1, 3, CPU)[0].shape == (1, 0)
    assert antecedents(0, 3, CPU)[0].shape == (0, 0)


def test_loss_equals_an_explicit_sum_over_antecedents() -> None:
    torch.manual_seed(0)
    index, there = antecedents(7, 4, CPU)
    scores = torch.randn(7, 4).masked_fill(~there, -torch.inf).requires_grad_()
    cluster = [0, 1, 1, 2, 1, 0, 2]
    same = torch.tensor(
        [[cluster[j] == c and c > 0 for j in row] for row, c in zip(index, cluster, strict=True)]
    )
    loss = marginal_loss(scores, same & there)
    wanted = torch.tensor(0.0)
    for i in range(7):
        odds, right = [torch.tensor(1.0)], []
        for k in range(4):
            j = i - 1 - k
            if j >= 0:
                odds.append(scores[i, k].exp())
                if cluster[i] > 0 and cluster[j] == cluster[i]:
                    right.append(scores[i, k].exp())
        wanted = wanted - torch.log(sum(right or odds[:1], torch.tensor(0.0)) / sum(odds))
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-5)
    loss.backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert torch.isfinite(scores.grad).all()
    assert marginal_loss(torch.zeros(0, 0), torch.zeros(0, 0, dtype=torch.bool)) == 0


def explicit(pairs: PairScorer, g: Tensor, said: Tensor, genre: int, i: int, j: int) -> Tensor:
    """Score one pair with the formula."""
    low = [1, 2, 3, 4, 5, 8, 16, 32, 64]
    distance = max(k for k, least in enumerate(low) if i - j >= least)
    speaker = 0 if 0 in (said[i], said[j]) else 2 if said[i] == said[j] else 1
    phi = [pairs.distances.weight[distance], pairs.speakers.weight[speaker]]
    read = torch.cat([g[i], g[j], g[i] * g[j], *phi, pairs.genres.weight[genre]])
    parts = [pairs.anaphor, pairs.antecedent, pairs.product, pairs.features]
    weight = torch.cat([part.weight for part in parts], dim=1)
    score: Tensor = pairs.rest(weight @ read + pairs.anaphor.bias)
    return score.squeeze()


@pytest.mark.parametrize(("at_once", "kept"), [(1 << 16, 1 << 27), (64, 1 << 27), (64, 0)])
def test_pair_scores_follow_the_formula_for_any_memory_limit(
    monkeypatch: pytest.MonkeyPatch, at_once: int, kept: int
) -> None:
    monkeypatch.setattr(pairing, "_PAIRS_PER_CHUNK", at_once)
    monkeypatch.setattr(pairing, "_MAX_SAVED_VALUES", kept)
    torch.manual_seed(0)
    pairs, g = PairScorer(6, 5, 2, 3, dropout=0.0), torch.randn(72, 6, requires_grad=True)
    said = torch.randint(0, 3, (72,))
    index, there = antecedents(72, 66, CPU)
    asked = there.nonzero()[::9]
    scores = pairs(g, said, torch.tensor(2), index)[asked[:, 0], asked[:, 1]]
    wanted = torch.stack([explicit(pairs, g, said, 2, i, i - 1 - k) for i, k in asked])
    assert torch.allclose(scores, wanted, atol=1e-5)
    found, true = (torch.autograd.grad(s.sin().sum(), g)[0] for s in (scores, wanted))
    assert torch.allclose(found, true, atol=1e-4)


def test_gold_clusters_of_spans() -> None:
    starts, ends = torch.tensor([0, 0, 2, 5]), torch.tensor([1, 2, 4, 6])
    gold = np.array([[0, 2, 3], [1, 2, 1], [5, 6, 2]])
    assert gold_cluster_ids(starts, ends, gold).tolist() == [0, 3, 0, 2]
    assert gold_cluster_ids(starts, ends, gold[:0]).tolist() == [0, 0, 0, 0]
