"""Confidence intervals for the difference between two systems: paired bootstrap over test examples.

The test set is resampled many times with replacement, and both systems are scored on the same
samples (Efron and Tibshirani 1993; Koehn 2004). All metrics are functions of sums over examples,
such as F1 of span counts, so a sample is scored by adding rows. A system can consist of
several runs with different seeds, whose mean is its score.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import DataError

#: Converts the summed rows of some examples to a score in percent.
Metric = Callable[[NDArray[np.float64]], float]

_DRAWS_PER_CHUNK = 64  # limits memory


@dataclass(frozen=True)
class Difference:
    """Two systems on the same test set, in percent.

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
    """Compare two systems.

    Args:
        base: The runs of the first system. Each has a row of counts per test example, (N, C).
        other: The runs of the second system on the same examples in the same order.
        metric: Converts summed rows to a score.
        draws: Number of samples.
        level: Confidence level.
        seed: Random seed.

    Raises:
        DataError: The runs have different numbers of examples.
    """
    shapes = {rows.shape for rows in (*base, *other)}
    if len(shapes) != 1 or not base or not other:
        listed = ", ".join(str(shape) for shape in sorted(shapes)) or "none"
        raise DataError(
            f"The runs must have counts of the same test examples; found shapes {listed}."
        )
    n = next(iter(shapes))[0]
    random = np.random.default_rng(seed)
    chunks = []
    for first in range(0, draws, _DRAWS_PER_CHUNK):
        size = min(_DRAWS_PER_CHUNK, draws - first)
        counts = random.multinomial(n, np.full(n, 1 / n), size=size).astype(np.float64)
        chunks.append(_scores(counts, other, metric) - _scores(counts, base, metric))
    differences = np.concatenate(chunks)
    [base_score, other_score] = (
        float(_scores(np.ones((1, n)), runs, metric)[0]) for runs in (base, other)
    )
    low, high = np.quantile(differences, [(1 - level) / 2, (1 + level) / 2]).tolist()
    not_better = float(np.mean(differences <= 0))
    scores = (base_score, other_score, other_score - base_score)
    return Difference(*scores, low, high, not_better, level, draws, n)


def _scores(
    counts: NDArray[np.float64], runs: Sequence[NDArray[np.float64]], metric: Metric
) -> NDArray[np.float64]:
    """Return the mean score of the runs for each sample.

    `counts` says how often each example is in each sample, (draws, N).
    """
    scores = np.array([[metric(sums) for sums in counts @ rows] for rows in runs])
    mean: NDArray[np.float64] = scores.mean(axis=0)
    return mean


def f1_metric(sums: NDArray[np.float64]) -> float:
    """Return F1 in percent, from sums of (gold, predicted, correct)."""
    gold, predicted, correct = sums
    return float(200 * correct / (gold + predicted)) if gold + predicted else 0.0


def mean_metric(sums: NDArray[np.float64]) -> float:
    """Return the mean in percent, such as an accuracy, from sums of (value, weight)."""
    value, weight = sums
    return float(100 * value / weight) if weight else 0.0
