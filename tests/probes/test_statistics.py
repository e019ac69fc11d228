"""ROC curves, thresholds and confidence intervals, compared with counting all cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.probes.statistics import area_under_curve, best_threshold, clustered_interval

SCORE = st.integers(-3, 3).map(float)


@given(st.lists(SCORE, min_size=1, max_size=12), st.lists(SCORE, min_size=1, max_size=12))
def test_area_under_curve_equals_counting_pairs(
    positive: list[float], negative: list[float]
) -> None:
    wins = sum((a > b) + (a == b) / 2 for a in positive for b in negative)
    expected = wins / len(positive) / len(negative)
    assert area_under_curve(positive, negative) == pytest.approx(expected)


def test_area_of_an_empty_group_is_undefined() -> None:
    assert math.isnan(area_under_curve([], [1.0]))


@given(st.lists(st.tuples(SCORE, st.booleans()), max_size=15))
def test_best_threshold_is_optimal(answers: list[tuple[float, bool]]) -> None:
    def right(threshold: float) -> int:
        return sum((score >= threshold) == same for score, same in answers)

    found = best_threshold([a for a, _ in answers], [b for _, b in answers])
    candidates = [-math.inf, math.inf, *(step / 2 for step in range(-8, 9))]
    assert right(found) == max(right(threshold) for threshold in candidates)


def test_clustering_widens_the_interval() -> None:
    draw = np.random.default_rng(0)
    cluster = np.repeat(np.arange(50), 10)
    correct = np.repeat(draw.random(50) < 0.7, 10)  # all ten are correct or all are wrong
    alone = clustered_interval(correct, np.arange(500))
    together = clustered_interval(correct, cluster)
    assert together.low < alone.low < correct.mean() < alone.high < together.high
    assert clustered_interval(correct, cluster) == together
