"""Top-k selection, compared with sorting all scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.embed.topk import TopK
from elmokit.errors import ConfigError


def best_by_sorting(
    scores: list[float], ids: list[int], groups: list[int], k: int
) -> list[tuple[float, int]]:
    """Sort all scores and keep the first of each group."""
    kept: dict[int, tuple[float, int]] = {}
    for score, number, group in sorted(
        zip(scores, ids, groups, strict=True), key=lambda c: (-c[0], c[1])
    ):
        if score > -np.inf:
            kept.setdefault(group, (score, number))
    return list(kept.values())[:k]


# Few distinct scores, so that most are tied; -inf marks a candidate that is excluded.
SCORES = st.sampled_from([-np.inf, -1.0, -0.5, 0.0, 0.25, 0.5, 1.0])


@given(
    candidates=st.lists(st.tuples(SCORES, SCORES, st.integers(0, 4)), max_size=40),
    k=st.integers(1, 8),
    block=st.integers(1, 50),
    grouped=st.booleans(),
    order=st.randoms(),
)
def test_blocks_in_any_order_equal_a_full_sort(candidates, k, block, grouped, order):  # type: ignore[no-untyped-def]
    ids = list(range(len(candidates)))
    groups = [group if grouped else number for number, (_, _, group) in enumerate(candidates)]
    shuffled = ids[:]
    order.shuffle(shuffled)
    best = TopK(k, rows=2)
    for first in range(0, len(ids), block):
        part = shuffled[first : first + block]
        scores = np.array([[candidates[i][row] for i in part] for row in (0, 1)], dtype=np.float32)
        best.add(scores, np.array(part), np.array([groups[i] for i in part]) if grouped else None)
    for row in (0, 1):
        expected = best_by_sorting([c[row] for c in candidates], ids, groups, k)
        found = list(zip(best.scores[row].tolist(), best.ids[row].tolist(), strict=True))
        assert found == expected + [(-np.inf, -1)] * (k - len(expected))


def test_scores_closer_than_a_rounding_error_are_ties() -> None:
    best = TopK(2)
    best.add(np.array([[0.5, 0.5000001, 0.50001]], dtype=np.float32), np.array([3, 4, 5]))
    assert best.ids.tolist() == [[5, 3]]


def test_two_searches_can_be_merged() -> None:
    rng = np.random.default_rng(0)
    scores = rng.random((2, 40), dtype=np.float32)
    whole, one, two = TopK(6, 2), TopK(6, 2), TopK(6, 2)
    whole.add(scores, np.arange(40))
    one.add(scores[:, :25], np.arange(25))
    two.add(scores[:, 25:], np.arange(25, 40))
    one.add(two.scores, two.ids)
    assert one.ids.tolist() == whole.ids.tolist()


@pytest.mark.parametrize("k", [0, 10**6 + 1])
def test_invalid_k_is_rejected(k: int) -> None:
    with pytest.raises(ConfigError, match=f"Invalid value for k: {k}. Expected 1 to"):
        TopK(k)
