"""Confidence intervals for the difference between two systems: paired bootstrap over test examples.

The test set is resampled many times with replacement, and both systems are scored on the same
samples (Efron and Tibshirani 1993; Koehn 2004). All metrics are functions of sums over examples,
such as F1 of span counts, so a sample is scored by adding the counts of its examples. A system can
consist of several runs with different seeds. The score of the system is the mean score of its runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import DataError

#: Converts the sum of rows of counts to a score in percent.
Metric = Callable[[NDArray[np.float64]], float]


@dataclass(frozen=True)
class Difference:
    """The difference between two systems on the same test set. Scores are in percent.

    Attributes:
        base: Score of the first system.
        other: Score of the second system.
        difference: other - base.
        low: Lower end of the confidence interval of the difference.
        high: Upper end of the confidence interval.
        not_better: Fraction of the samples in which the second system is not better.
        level: Confidence level.
        draws: Number of samples.
        examples: Number of test examples.
    """

    base: float
    other: float
    difference: float
    low: float
    high: float
    not_better: float
    level: float
    draws: int
    examples: int


def paired_bootstrap(
    base: Sequence[NDArray[np.float64]],
    other: Sequence[NDArray[np.float64]],
    metric: Metric,
    *,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Difference:
    """Compare two systems on the same test set.

    Args:
        base: The runs of the first system. Each run has one row of counts per test example, (N, C).
        other: The runs of the second system on the same examples, in the same order.
        metric: Converts the sum of rows to a score.
        draws: Number of samples.
        level: Confidence level.
        seed: Random seed.

    Raises:
        DataError: A system has no runs, or the counts of the runs differ in shape.
    """
    shapes = {rows.shape for rows in (*base, *other)}
    if len(shapes) != 1 or not base or not other:
        listed = ", ".join(str(shape) for shape in sorted(shapes)) or "none"
        raise DataError(
            "Expected counts of the same test examples in all runs of both systems; found shapes: "
            f"{listed}. Use runs with predictions for the same test set."
        )
    n = len(base[0])
    random = np.random.default_rng(seed)
    differences = np.empty(draws)
    for draw in range(draws):
        counts = random.multinomial(n, np.full(n, 1 / n))  # occurrences of each example
        differences[draw] = _mean_score(other, counts, metric) - _mean_score(base, counts, metric)
    low, high = np.quantile(differences, [(1 - level) / 2, (1 + level) / 2]).tolist()
    not_better = float(np.mean(differences <= 0))
    base_score, other_score = (_mean_score(runs, np.ones(n), metric) for runs in (base, other))
    scores = (base_score, other_score, other_score - base_score)
    return Difference(*scores, low, high, not_better, level, draws, n)


def _mean_score(runs: Sequence[NDArray[np.float64]], counts: NDArray[Any], metric: Metric) -> float:
    """Return the mean score of the runs on a sample, given how often each example was drawn."""
    return float(np.mean([metric(counts @ rows) for rows in runs]))


def f1_metric(sums: NDArray[np.float64]) -> float:
    """Return F1 in percent, from sums of (gold, predicted, correct)."""
    gold, predicted, correct = sums
    return float(200 * correct / (gold + predicted)) if gold + predicted else 0.0


def mean_metric(sums: NDArray[np.float64]) -> float:
    """Return the mean in percent, such as an accuracy, from sums of (value, weight)."""
    value, weight = sums
    return float(100 * value / weight) if weight else 0.0
