"""The paired bootstrap, compared with resampling individual examples and known results."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from elmokit.errors import DataError
from elmokit.tasks.metrics.bootstrap import f1_metric, mean_metric, paired_bootstrap
from elmokit.tasks.metrics.spans import span_scores

Rows = NDArray[np.float64]


def right(chance: float, n: int, seed: int) -> Rows:
    """Generate the counts of a classifier with a given accuracy."""
    hits = np.random.default_rng(seed).random(n) < chance
    return np.stack([hits, np.ones(n)], axis=1).astype(np.float64)


def test_scores_are_those_of_the_whole_test_set() -> None:
    gold = [("B-A", "I-A", "O"), ("O",), ("B-B", "O", "B-A")]
    guesses = [("B-A", "O", "O"), ("O",), ("B-B", "O", "B-A")]
    rows = []
    for true, guess in zip(gold, guesses, strict=True):
        scores = span_scores([true], [guess])
        rows.append([scores["gold"], scores["predicted"], scores["correct"]])
    found = f1_metric(np.array(rows, dtype=np.float64).sum(axis=0))
    assert found == pytest.approx(span_scores(gold, guesses)["f1"])
    assert f1_metric(np.zeros(3)) == 0.0
    assert mean_metric(np.array([3.0, 4.0])) == 75.0
    assert mean_metric(np.zeros(2)) == 0.0


def test_interval_equals_resampling_individual_examples() -> None:
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


def test_paired_comparison_has_a_narrower_interval() -> None:
    base = right(0.6, 400, 1)
    other = base.copy()
    wrong = np.flatnonzero(base[:, 0] == 0)
    other[wrong[:20], 0] = 1  # correct whenever the first one is, and 20 more times
    found = paired_bootstrap([base], [other], mean_metric)
    assert found.difference == pytest.approx(5.0)
    assert found.low > 0
    assert found.not_better == 0
    shuffled = other[np.random.default_rng(3).permutation(400)]
    apart = paired_bootstrap([base], [shuffled], mean_metric)
    assert apart.high - apart.low > 2 * (found.high - found.low)


def test_identical_systems_do_not_differ_and_the_seed_is_used() -> None:
    rows = right(0.5, 100, 0)
    same = paired_bootstrap([rows], [rows], mean_metric, draws=200)
    assert (same.difference, same.low, same.high, same.not_better) == (0, 0, 0, 1)
    other = right(0.6, 100, 1)
    one, two = (paired_bootstrap([rows], [other], mean_metric, seed=7, draws=200) for _ in "ab")
    assert one == two
    assert paired_bootstrap([rows], [other], mean_metric, seed=8, draws=200) != one
    assert one.examples == 100


def test_several_runs_are_averaged_to_one_system() -> None:
    base = [right(0.5, 200, seed) for seed in range(3)]
    other = [right(0.7, 200, seed) for seed in range(3, 5)]
    found = paired_bootstrap(base, other, mean_metric, draws=100)
    assert found.base == pytest.approx(np.mean([100 * rows[:, 0].mean() for rows in base]))
    assert found.other == pytest.approx(np.mean([100 * rows[:, 0].mean() for rows in other]))


def test_other_test_sets_are_rejected() -> None:
    with pytest.raises(DataError, match=r"found shapes: \(10, 2\), \(12, 2\)"):
        paired_bootstrap([right(0.5, 10, 0)], [right(0.5, 12, 0)], mean_metric)
    with pytest.raises(DataError):
        paired_bootstrap([], [right(0.5, 12, 0)], mean_metric)
