"""The paired bootstrap against drawing examples one by one, and where the answer is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from elmokit.errors import DataError
from elmokit.tasks.metrics.bootstrap import f1_metric, mean_metric, paired_bootstrap
from elmokit.tasks.metrics.spans import span_scores

Rows = NDArray[np.float64]


def right(chance: float, n: int, seed: int) -> Rows:
    """Counts of a classifier that is right with some chance."""
    hits = np.random.default_rng(seed).random(n) < chance
    return np.stack([hits, np.ones(n)], axis=1).astype(np.float64)


def test_figures_are_the_scores_of_the_whole_test_set() -> None:
    gold = [("B-A", "I-A", "O"), ("O",), ("B-B", "O", "B-A")]
    guesses = [("B-A", "O", "O"), ("O",), ("B-B", "O", "B-A")]
    rows = []
    for true, guess in zip(gold, guesses, strict=True):
        scores = span_scores([true], [guess])
        rows.append([scores["gold"], scores["predicted"], scores["right"]])
    found = f1_metric(np.array(rows, dtype=np.float64).sum(axis=0))
    assert found == pytest.approx(span_scores(gold, guesses)["f1"])
    assert f1_metric(np.zeros(3)) == 0.0
    assert mean_metric(np.array([3.0, 4.0])) == 75.0
    assert mean_metric(np.zeros(2)) == 0.0


def test_the_interval_is_that_of_drawing_examples_one_by_one() -> None:
    base, other = right(0.6, 300, 1), right(0.7, 300, 2)
    found = paired_bootstrap([base], [other], mean_metric, draws=4000)
    random = np.random.default_rng(5)
    draws = []
    for _ in range(4000):
        numbers = random.integers(0, 300, 300)
        draws.append(100 * (other[numbers, 0].mean() - base[numbers, 0].mean()))
    low, high = np.quantile(draws, [0.025, 0.975])
    assert found.low == pytest.approx(low, abs=0.5)
    assert found.high == pytest.approx(high, abs=0.5)
    assert found.difference == pytest.approx(100 * (other[:, 0].mean() - base[:, 0].mean()))
    assert found.low < found.difference < found.high


def test_what_is_paired_is_surer_than_what_is_not() -> None:
    base = right(0.6, 400, 1)
    other = base.copy()
    wrong = np.flatnonzero(base[:, 0] == 0)
    other[wrong[:20], 0] = 1  # right wherever the first is, and 20 times more
    found = paired_bootstrap([base], [other], mean_metric)
    assert found.difference == pytest.approx(5.0)
    assert found.low > 0
    assert found.not_better == 0
    shuffled = other[np.random.default_rng(3).permutation(400)]
    apart = paired_bootstrap([base], [shuffled], mean_metric)
    assert apart.high - apart.low > 2 * (found.high - found.low)


def test_the_same_system_is_not_better_and_the_seed_decides() -> None:
    rows = right(0.5, 100, 0)
    same = paired_bootstrap([rows], [rows], mean_metric, draws=200)
    assert (same.difference, same.low, same.high, same.not_better) == (0, 0, 0, 1)
    other = right(0.6, 100, 1)
    one, two = (paired_bootstrap([rows], [other], mean_metric, seed=7, draws=200) for _ in "ab")
    assert one == two
    assert paired_bootstrap([rows], [other], mean_metric, seed=8, draws=200) != one
    assert one.examples == 100


def test_several_runs_are_one_system_with_their_mean() -> None:
    base = [right(0.5, 200, seed) for seed in range(3)]
    other = [right(0.7, 200, seed) for seed in range(3, 5)]
    found = paired_bootstrap(base, other, mean_metric, draws=100)
    assert found.base == pytest.approx(np.mean([100 * rows[:, 0].mean() for rows in base]))
    assert found.other == pytest.approx(np.mean([100 * rows[:, 0].mean() for rows in other]))


def test_other_test_sets_are_refused() -> None:
    with pytest.raises(DataError, match=r"found shapes \(10, 2\), \(12, 2\)"):
        paired_bootstrap([right(0.5, 10, 0)], [right(0.5, 12, 0)], mean_metric)
    with pytest.raises(DataError):
        paired_bootstrap([], [right(0.5, 12, 0)], mean_metric)
