"""Area under the curve, thresholds, bootstrap intervals and differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from pydantic_core import from_json, to_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RESAMPLES = 2000


class Interval(NamedTuple):
    """The ends of a 95% confidence interval."""

    low: float
    high: float


def area_under_curve(positive: ArrayLike, negative: ArrayLike) -> float:
    """Return the area under the ROC curve, NaN if a group is empty.

    It is the probability that a positive score is above a negative one; ties count as one half.
    """
    a, b = np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)
    if not a.size or not b.size:
        return float("nan")
    b = np.sort(b)
    below = np.searchsorted(b, a, side="left") + np.searchsorted(b, a, side="right")
    return float(below.sum() / 2 / (a.size * b.size))


def best_threshold(scores: ArrayLike, labels: ArrayLike) -> float:
    """Return the threshold t for which `score >= t` is correct most often.

    It is half-way between two neighboring scores, or infinite if the same answer for all is best.
    Of equally good thresholds, the lowest is returned.
    """
    values = np.asarray(scores, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    values, true = values[order], np.asarray(labels, dtype=bool)[order]
    # right[i]: correct answers if the first i scores are below the threshold.
    right = np.concatenate([[0], np.cumsum(~true)]) + true.sum()
    right[1:] -= np.cumsum(true)
    ends = np.concatenate([[-np.inf], values, [np.inf]])
    possible = ends[1:] > ends[:-1]  # no threshold separates equal scores
    best = int(np.argmax(np.where(possible, right, -1)))
    if best == 0:
        return -np.inf
    return np.inf if best == len(values) else float((values[best - 1] + values[best]) / 2)


def clustered_interval(
    correct: ArrayLike,
    clusters: ArrayLike,
    *,
    sizes: ArrayLike | None = None,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return a bootstrap interval of an accuracy over clustered answers.

    Answers in a cluster, such as those about one lemma, are correlated. Therefore clusters are
    resampled, which gives a wider, more realistic interval. `sizes` are the weights of the answers
    in the denominator, for an F1 with instances without an answer.
    """
    _, cluster = np.unique(np.asarray(clusters), return_inverse=True)
    right = np.bincount(cluster, weights=np.asarray(correct, dtype=np.float64))
    size = np.bincount(cluster, weights=np.ones(len(cluster)) if sizes is None else sizes)
    if not size.size:
        return Interval(float("nan"), float("nan"))
    draw = np.random.default_rng(seed)
    samples = []
    for _ in range(resamples):
        drawn = draw.integers(size.size, size=size.size)
        samples.append(right[drawn].sum() / size[drawn].sum())
    low, high = np.quantile(samples, [0.025, 0.975])
    return Interval(float(low), float(high))


@dataclass(frozen=True)
class Difference:
    """The difference between two ways to answer the same questions.

    Attributes:
        first: The name of the first.
        second: The name of the second.
        value: The score of the first minus that of the second.
        interval: Its 95% interval; the difference is significant if it does not contain 0.
    """

    first: str
    second: str
    value: float
    interval: Interval

    def __str__(self) -> str:
        """Return the difference in percent, and whether it is significant."""
        low, high = self.interval
        remark = "" if low > 0 or high < 0 else "; not significant"
        return (
            f"{self.first} minus {self.second}: {100 * self.value:+.2f} "
            f"(95%: {100 * low:+.2f} to {100 * high:+.2f}{remark})"
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
    """Compare two ways to answer, paired by question; None if `correct` has only one of them."""
    if first not in correct or second not in correct:
        return None
    gains = np.asarray(correct[first], np.float64) - np.asarray(correct[second], np.float64)
    total = len(gains) if sizes is None else float(np.sum(sizes))
    interval = clustered_interval(gains, clusters, sizes=sizes, seed=seed)
    return Difference(first, second, float(gains.sum()) / total, interval)


def json_values(report: DataclassInstance) -> dict[str, Any]:
    """Return a report as plain JSON values; NaN and infinities become null."""
    values: dict[str, Any] = from_json(to_json(asdict(report), inf_nan_mode="null"))
    return values
