"""How well a score tells two groups apart, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic_core import from_json, to_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RESAMPLES = 2000


class Interval(NamedTuple):
    """The ends of a 95% confidence interval."""

    low: float
    high: float


def area_under_curve(positive: ArrayLike, negative: ArrayLike) -> float:
    """Return how often a positive score is above a negative one; ties count half.

    This is the area under the ROC curve, by ranks. nan if a group is empty.
    """
    a, b = np.asarray(positive, dtype=np.float64), np.asarray(negative, dtype=np.float64)
    if not a.size or not b.size:
        return float("nan")
    b = np.sort(b)
    below = np.searchsorted(b, a, side="left") + np.searchsorted(b, a, side="right")
    return float(below.sum() / 2 / (a.size * b.size))


def best_threshold(scores: ArrayLike, labels: ArrayLike) -> float:
    """Return the threshold t that makes `score >= t` right most often.

    It lies half-way between two neighboring scores, or at an infinity if one answer for all is
    best. Of equally good ones the lowest is taken.
    """
    values = np.asarray(scores, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    values, true = values[order], np.asarray(labels, dtype=bool)[order]
    # right[i]: answers that are right if the first i scores are below the threshold.
    right = np.concatenate([[0], np.cumsum(~true)]) + true.sum()
    right[1:] -= np.cumsum(true)
    ends = np.concatenate([[-np.inf], values, [np.inf]])
    possible = ends[1:] > ends[:-1]  # no threshold parts equal scores
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
    """Return a bootstrap interval of an accuracy whose answers come in clusters.

    Answers about one lemma share sentences and stand or fall together, so lemmas are drawn, not
    answers; the interval is wider and more honest for it. With `sizes` an answer counts as much in
    the denominator, as in an F1 where some questions have no answer.
    """
    _, cluster = np.unique(np.asarray(clusters), return_inverse=True)
    right = np.bincount(cluster, weights=np.asarray(correct, dtype=np.float64))
    size = np.bincount(cluster, weights=np.ones(len(cluster)) if sizes is None else sizes)
    if not size.size:
        return Interval(float("nan"), float("nan"))
    draw = np.random.default_rng(seed)
    found: NDArray[np.float64] = np.empty(resamples)
    for i in range(resamples):
        drawn = draw.integers(size.size, size=size.size)
        found[i] = right[drawn].sum() / size[drawn].sum()
    low, high = np.quantile(found, [0.025, 0.975])
    return Interval(float(low), float(high))


@dataclass(frozen=True)
class Difference:
    """How much better the first is than the second, on the same answers.

    Attributes:
        first: What is compared.
        second: What it is compared with.
        value: The figure of the first less that of the second.
        interval: Its 95% interval; they surely differ if 0 is outside.
    """

    first: str
    second: str
    value: float
    interval: Interval

    def __str__(self) -> str:
        """Return it in percent, and whether it is sure."""
        low, high = self.interval
        sure = "" if low > 0 or high < 0 else "; not significant"
        return (
            f"{self.first} minus {self.second}: {100 * self.value:+.2f} "
            f"(95%: {100 * low:+.2f} to {100 * high:+.2f}{sure})"
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
    """Compare two ways to answer, answer by answer; None if one of them is not in `correct`."""
    if first not in correct or second not in correct:
        return None
    less = np.asarray(correct[first], np.float64) - np.asarray(correct[second], np.float64)
    total = len(less) if sizes is None else float(np.sum(sizes))
    interval = clustered_interval(less, clusters, sizes=sizes, seed=seed)
    return Difference(first, second, float(less.sum()) / total, interval)


def json_values(report: DataclassInstance) -> dict[str, Any]:
    """Return a report as plain JSON values; numbers that JSON has no word for become null."""
    values: dict[str, Any] = from_json(to_json(asdict(report), inf_nan_mode="null"))
    return values
