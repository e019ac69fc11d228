"""Confidence of the difference between two systems: paired bootstrap over test examples.

The test set is resampled many times with replacement, and both systems are scored on the same
samples (Efron and Tibshirani 1993; Koehn 2004). All scores here are functions of sums over
examples, such as F1 of span counts, so a sample is scored by adding rows. A system can consist of
several runs with different seeds; its score is their mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import DataError

#: Converts the summed rows of some examples to a score in percent.
Figure = Callable[[NDArray[np.float64]], float]

_AT_ONCE = 64  # draws


@dataclass(frozen=True)
class Difference:
    """Two systems on the same test set, in percent.

    Attributes:
        base: Score of the first.
        other: Score of the second.
        difference: other - base.
        low: Lower end of the confidence interval of the difference.
        high: Its upper end.
        not_better: Fraction of the samples in which the second is not better.
        level: Confidence level.
        draws: Number of samples.
        examples: Test examples.
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
    figure: Figure,
    *,
    draws: int = 2000,
    level: float = 0.95,
    seed: int = 0,
) -> Difference:
    """Compare two systems.

    Args:
        base: The runs of the first: for each test example a row of counts, (N, C).
        other: The runs of the second, on the same examples in the same order.
        figure: Converts summed rows to a score.
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
    differences: list[float] = []
    for first in range(0, draws, _AT_ONCE):
        size = min(_AT_ONCE, draws - first)
        times = random.multinomial(n, np.full(n, 1 / n), size=size).astype(np.float64)
        scored = zip(_scores(times, base, figure), _scores(times, other, figure), strict=True)
        differences += [b - a for a, b in scored]
    once = np.ones((1, n))
    [base_score], [other_score] = _scores(once, base, figure), _scores(once, other, figure)
    low, high = np.quantile(differences, [(1 - level) / 2, (1 + level) / 2])
    not_better = float(np.mean(np.array(differences) <= 0))
    scores = (base_score, other_score, other_score - base_score)
    return Difference(*scores, float(low), float(high), not_better, level, draws, n)


def _scores(
    times: NDArray[np.float64], runs: Sequence[NDArray[np.float64]], figure: Figure
) -> list[float]:
    """Return the mean score of runs for each sample; `times` counts each example in it.

    Shape:
        times (draws, N)
    """
    scores = [[figure(sums) for sums in times @ rows] for rows in runs]
    return [float(value) for value in np.mean(scores, axis=0)]


def f1_figure(sums: NDArray[np.float64]) -> float:
    """Return F1 of sums of (gold, predicted, correct)."""
    gold, predicted, right = sums
    return float(200 * right / (gold + predicted)) if gold + predicted else 0.0


def mean_figure(sums: NDArray[np.float64]) -> float:
    """Return the mean, in percent, of sums of (value, weight): accuracy, or F1 of answers."""
    value, weight = sums
    return float(100 * value / weight) if weight else 0.0
