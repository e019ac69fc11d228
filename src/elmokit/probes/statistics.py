"""Area under the ROC curve, thresholds, bootstrap confidence intervals and paired differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

_RESAMPLES = 2000


class Interval(NamedTuple):
    """The endpoints of a 95% confidence interval."""

    low: float
    high: float

    def __str__(self) -> str:
        """Return the endpoints as text."""
        return f"{self.low:.4f} to {self.high:.4f}"


def area_under_curve(positive: ArrayLike, negative: ArrayLike) -> float:
    """Return the area under the ROC curve, or NaN if either class has no scores.

    It is the probability that a positive score is above a negative one; ties count as one half.
    """
    a, b = np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)
    if not a.size or not b.size:
        return float("nan")
    b = np.sort(b)
    below = np.searchsorted(b, a, side="left") + np.searchsorted(b, a, side="right")
    return float(below.sum() / 2 / (a.size * b.size))


def best_threshold(scores: ArrayLike, labels: ArrayLike) -> float:
    """Return the threshold t for which `score >= t` predicts the label correctly most often.

    The threshold is halfway between two adjacent distinct scores, or infinite if it is best to give
    all examples the same label. If several thresholds are equally good, the lowest one is returned.
    """
    values, positive = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=bool)
    distinct = np.unique(values)
    thresholds = np.concatenate([[-np.inf], (distinct[1:] + distinct[:-1]) / 2, [np.inf]])
    false_negatives = np.searchsorted(np.sort(values[positive]), thresholds)
    true_negatives = np.searchsorted(np.sort(values[~positive]), thresholds)
    return float(thresholds[np.argmax(true_negatives - false_negatives)])


def clustered_interval(
    correct: ArrayLike,
    clusters: ArrayLike,
    *,
    sizes: ArrayLike | None = None,
    seed: int = 0,
) -> Interval:
    """Return a 95% bootstrap confidence interval for the accuracy of clustered answers.

    Answers in a cluster, such as those for the same lemma, are correlated. Resampling clusters
    instead of answers gives a wider and more realistic interval.

    Args:
        correct: Whether each answer is correct, or its score.
        clusters: The cluster of each answer.
        sizes: The weight of each answer in the denominator, for F1 with unanswered instances.
            Default: 1.
        seed: Random seed.
    """
    _, cluster = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.bincount(cluster, weights=np.asarray(correct, dtype=np.float64))
    size = np.bincount(cluster, weights=sizes)
    samples = np.random.default_rng(seed).integers(len(size), size=(_RESAMPLES, len(size)))
    accuracies = sums[samples].sum(axis=1) / size[samples].sum(axis=1)
    return Interval(*np.quantile(accuracies, [0.025, 0.975]).tolist())


@dataclass(frozen=True)
class Difference:
    """The difference between the scores of two methods on the same examples.

    Attributes:
        first: Name of the first method.
        second: Name of the second method.
        value: Score of the first method minus that of the second.
        interval: 95% confidence interval of the difference. The difference is significant if the
            interval does not contain 0.
    """

    first: str
    second: str
    value: float
    interval: Interval

    def __str__(self) -> str:
        """Return the difference, and whether it is significant."""
        low, high = self.interval
        note = "" if low > 0 or high < 0 else "; not significant"
        return (
            f"{self.first} minus {self.second}: {self.value:+.4f} "
            f"(95% CI: {low:+.4f} to {high:+.4f}{note})"
        )


def difference(
    correct: Mapping[str, ArrayLike],
    clusters: ArrayLike,
    first: str,
    second: str,
    *,
    sizes: ArrayLike | None = None,
    seed: int = 0,
) -> Difference | None:
    """Compare two methods on the same examples. Return None if one of them is not in `correct`."""
    if first not in correct or second not in correct:
        return None
    gains = np.asarray(correct[first], np.float64) - np.asarray(correct[second], np.float64)
    total = len(gains) if sizes is None else float(np.sum(sizes))
    interval = clustered_interval(gains, clusters, sizes=sizes, seed=seed)
    return Difference(first, second, float(gains.sum()) / total, interval)
