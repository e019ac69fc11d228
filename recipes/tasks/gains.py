"""Gains of ELMo over a baseline: means over seeds, intervals by a paired bootstrap."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from counts import counts_of
from results import Measured

from elmokit.tasks.metrics.bootstrap import paired_bootstrap

Values = dict[str, Any]

_INTERVAL = ("low", "high", "not_better", "level", "draws", "examples")
_VISIBLE = 5e-4  # smaller differences do not show in the tables
_NO_INTERVAL: Values = {"seeds": {"baseline": [], "elmo": []}}


def gain(base: Measured, elmo: Measured, published: Values | None) -> Values | None:
    """Compare two cells on the test examples, if both were run.

    Scores and their difference use all runs. The interval requires predictions. It uses the runs
    that have them, or is the published interval if that one is based on more runs.

    Args:
        base: The cell without ELMo.
        elmo: The cell with ELMo.
        published: The published result of this function.

    Returns:
        JSON values: the fields of `Difference`, and in "seeds" the runs behind the interval, by
        side. "difference_of_seeds" is their difference if it is not that of all runs.
    """
    if not base or not elmo:
        return None
    candidates = [c for c in (_bootstrap(base, elmo), published) if c is not None]
    found = max(candidates, key=_n_runs, default=_NO_INTERVAL)  # prefers the new one in a tie
    values: Values = {"base": base.mean("test"), "other": elmo.mean("test")}
    values["difference"] = values["other"] - values["base"]
    values |= {name: found[name] for name in _INTERVAL if name in found}
    values["seeds"] = found["seeds"]
    center = found.get("difference_of_seeds", found.get("difference"))
    if center is not None and not math.isclose(center, values["difference"], abs_tol=_VISIBLE):
        values["difference_of_seeds"] = center
    return values


def gain_text(values: Values) -> str:
    """Format a gain for a table."""
    interval = f" ({values['low']:+.2f} to {values['high']:+.2f})" if "low" in values else ""
    return f"{values['difference']:+.2f}{interval}"


def remark(values: Values) -> str | None:
    """Describe the runs behind the interval, if they are not all runs."""
    if "low" not in values:
        return "no interval, because the predictions of one side were not stored."
    if "difference_of_seeds" not in values:
        return None
    base, elmo = (" and ".join(map(str, values["seeds"][side])) for side in ("baseline", "elmo"))
    return (
        "the interval uses only the runs with stored predictions (without ELMo seed "
        f"{base}, with ELMo seed {elmo}); their gain is {values['difference_of_seeds']:+.2f}."
    )


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
