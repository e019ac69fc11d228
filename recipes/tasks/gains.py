"""Gains of one cell over another, with intervals over seeds or over test examples."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from counts import count_examples
from results import CellResults
from scipy.stats import ttest_ind

from elmokit.tasks.metrics.bootstrap import paired_bootstrap

Values = dict[str, Any]

_INTERVAL_KEYS = ("low", "high", "not_better", "level", "draws", "examples")
_NO_INTERVAL: Values = {"seeds": {"baseline": [], "elmo": []}}


def gain_over_seeds(base: CellResults, other: CellResults) -> Values | None:
    """Compare the test scores of two cells. The confidence interval is Welch's t interval."""
    if not base or not other:
        return None
    scores = other.scores("test"), base.scores("test")
    values: Values = {"difference": other.mean("test") - base.mean("test")}
    if min(map(len, scores)) > 1:
        low, high = ttest_ind(*scores, equal_var=False).confidence_interval(0.95)
        values |= {"low": float(low), "high": float(high), "level": 0.95}
    return values


def gain(base: CellResults, other: CellResults, published: Values | None) -> Values | None:
    """Compare two cells with a paired bootstrap over the test examples, if both were run.

    Scores and their difference use all runs. The interval requires predictions. It is computed
    from the runs that have them, unless the published interval is based on more runs.

    Args:
        base: The runs of the first cell.
        other: The runs of the second cell.
        published: The published result of this function.

    Returns:
        JSON values: the fields of `Difference`, and in "seeds" the seeds of the runs that the
        interval is based on.
    """
    if not base or not other:
        return None
    candidates = [c for c in (_bootstrap(base, other), published) if c is not None]
    # In a tie, the first candidate is used.
    interval = max(candidates, key=_n_runs, default=_NO_INTERVAL)
    values: Values = {"base": base.mean("test"), "other": other.mean("test")}
    values["difference"] = values["other"] - values["base"]
    values |= {name: interval[name] for name in _INTERVAL_KEYS if name in interval}
    values["seeds"] = interval["seeds"]
    return values


def format_gain(values: Values) -> str:
    """Format a gain for a table."""
    interval = f" ({values['low']:+.2f} to {values['high']:+.2f})" if "low" in values else ""
    return f"{values['difference']:+.2f}{interval}"


def error_reduction(base: float, other: float) -> float:
    """Return the relative error reduction in percent, as defined in the paper."""
    return 100 * (other - base) / (100 - base)


def _n_runs(values: Values) -> int:
    return sum(len(seeds) for seeds in values["seeds"].values())


def _bootstrap(base: CellResults, other: CellResults) -> Values | None:
    """Resample the test set of the runs that have predictions. None if a cell has no such run."""
    tables: dict[str, list[Any]] = {"baseline": [], "elmo": []}
    seeds: dict[str, list[int]] = {side: [] for side in tables}
    metric = None
    for side, results in zip(tables, (base, other), strict=True):
        for run in results.runs:
            if run.predictions is not None:
                rows, metric = count_examples(results.cell.task, run.predictions, run.test)
                tables[side].append(rows)
                seeds[side].append(run.seed)
    if metric is None or not all(tables.values()):
        return None
    difference = paired_bootstrap(tables["baseline"], tables["elmo"], metric)
    return {**asdict(difference), "seeds": seeds}
