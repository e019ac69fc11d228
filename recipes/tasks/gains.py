"""Gains of one cell over another, with intervals over seeds or over test examples."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from counts import counts_of
from results import Measured
from scipy.stats import ttest_ind

from elmokit.tasks.metrics.bootstrap import paired_bootstrap

Values = dict[str, Any]

_INTERVAL = ("low", "high", "not_better", "level", "draws", "examples")
_NO_INTERVAL: Values = {"seeds": {"baseline": [], "elmo": []}}


def gain_over_seeds(base: Measured, elmo: Measured) -> Values | None:
    """Compare the test scores of the runs of two cells with Welch's t interval."""
    if not base or not elmo:
        return None
    scores = elmo.scores("test"), base.scores("test")
    values: Values = {"difference": elmo.mean("test") - base.mean("test")}
    if min(map(len, scores)) > 1:
        low, high = ttest_ind(*scores, equal_var=False).confidence_interval(0.95)
        values |= {"low": float(low), "high": float(high), "level": 0.95}
    return values


def gain(base: Measured, elmo: Measured, published: Values | None) -> Values | None:
    """Compare two cells with a paired bootstrap over the test examples, if both were run.

    Scores and their difference use all runs. The interval requires predictions. It uses the runs
    that have them, or is the published interval if that one is based on more runs.

    Args:
        base: The cell without ELMo.
        elmo: The cell with ELMo.
        published: The published result of this function.

    Returns:
        JSON values: the fields of `Difference`, and in "seeds" the runs behind the interval, by
        side.
    """
    if not base or not elmo:
        return None
    candidates = [c for c in (_bootstrap(base, elmo), published) if c is not None]
    found = max(candidates, key=_n_runs, default=_NO_INTERVAL)  # prefers the new one in a tie
    values: Values = {"base": base.mean("test"), "other": elmo.mean("test")}
    values["difference"] = values["other"] - values["base"]
    values |= {name: found[name] for name in _INTERVAL if name in found}
    values["seeds"] = found["seeds"]
    return values


def gain_text(values: Values) -> str:
    """Format a gain for a table."""
    interval = f" ({values['low']:+.2f} to {values['high']:+.2f})" if "low" in values else ""
    return f"{values['difference']:+.2f}{interval}"


def error_reduction(base: float, other: float) -> float:
    """Return the relative error reduction in percent, as defined in the paper."""
    return 100 * (other - base) / (100 - base)


def _n_runs(values: Values) -> int:
    return sum(len(seeds) for seeds in values["seeds"].values())


def _bootstrap(base: Measured, elmo: Measured) -> Values | None:
    """Resample the test set of runs with predictions; None if one side has no such run."""
    tables: dict[str, list[Any]] = {"baseline": [], "elmo": []}
    seeds: dict[str, list[int]] = {side: [] for side in tables}
    figure = None
    for side, measured in zip(tables, (base, elmo), strict=True):
        for run in measured.runs:
            if run.predictions is not None:
                rows, figure = counts_of(measured.cell.task, run.predictions, run.test)
                tables[side].append(rows)
                seeds[side].append(run.seed)
    if figure is None or not all(tables.values()):
        return None
    found = paired_bootstrap(tables["baseline"], tables["elmo"], figure)
    return {**asdict(found), "seeds": seeds}
