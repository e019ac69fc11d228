"""From the folders of runs to figures: means over seeds, differences, curves, learned weights."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counts import METRIC, counts_of
from runs import SEEDS, Cell, Run

from elmokit.tasks.metrics.bootstrap import Difference, paired_bootstrap

#: Epochs without a better score after which a run that was cut still counts.
_PAST_BEST = 2


@dataclass(frozen=True)
class Finished:
    """A run that has ended.

    Attributes:
        folder: Where it is.
        seed: Its seed.
        dev: The best score on the dev data.
        test: The score of the same weights on the test data.
        epochs: Epochs it had.
        best_epoch: The one that was kept.
        cut: Whether time ran out before it would have stopped.
        seconds: Time it took.
        mixes: Learned s_j and gamma, by place.
    """

    folder: Path
    seed: int
    dev: float
    test: float
    epochs: int
    best_epoch: int
    cut: bool
    seconds: float
    mixes: dict[str, Any]

    @property
    def ripe(self) -> bool:
        """Whether it stopped by itself, or was at least past its best epoch when time was over."""
        return not self.cut or self.epochs - self.best_epoch >= _PAST_BEST

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "seed": self.seed,
            "dev": round(self.dev, 4),
            "test": round(self.test, 4),
            "epochs": self.epochs,
            "best_epoch": self.best_epoch,
            "cut": self.cut,
            "seconds": self.seconds,
            "mixes": self.mixes,
        }


def finished(out: Path, run: Run) -> Finished | None:
    """Return a run if it has ended."""
    folder = out / run.name
    try:
        values = json.loads((folder / "config.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    results, metric = values["results"], METRIC[run.cell.task]
    return Finished(
        folder=folder,
        seed=run.seed,
        dev=results["dev"][metric],
        test=results["test"][metric],
        epochs=results["epochs"],
        best_epoch=results["best_epoch"],
        # `run.py --measure` ends a run by asking for one epoch.
        cut=values["config"]["train"]["epochs"] == 1
        or results["epochs"] > values["config"]["train"]["epochs"],
        seconds=results["seconds"],
        mixes=results["mixes"],
    )


class Measured:
    """The finished runs of a cell; there may be none.

    A run that time cut while it still rose says little, and is not counted. If a cell has no other,
    the longest of them stands, with its star.
    """

    def __init__(self, out: Path, cell: Cell) -> None:
        found = (finished(out, Run(cell, seed)) for seed in SEEDS)
        runs = [run for run in found if run is not None]
        longest = sorted(runs, key=lambda run: run.epochs)[-1:]
        self.cell = cell
        self.runs = [run for run in runs if run.ripe] or longest

    def __bool__(self) -> bool:
        return bool(self.runs)

    def scores(self, part: str) -> list[float]:
        """Return the scores of all seeds, on "dev" or "test"."""
        return [getattr(run, part) for run in self.runs]

    def mean(self, part: str) -> float:
        """Return the mean over the seeds."""
        return sum(self.scores(part)) / len(self.runs)

    def deviation(self, part: str) -> float | None:
        """Return the standard deviation over the seeds (n - 1); None of a single run."""
        if len(self.runs) < 2:
            return None
        mean = self.mean(part)
        return math.sqrt(sum((x - mean) ** 2 for x in self.scores(part)) / (len(self.runs) - 1))

    def text(self, part: str) -> str:
        """Return mean and deviation as a table has it, with a star if time cut a run short."""
        if not self:
            return "not run"
        deviation = self.deviation(part)
        spread = " (1 run)" if deviation is None else f" ± {deviation:.2f}"
        return f"{self.mean(part):.2f}{spread}{'*' if any(run.cut for run in self.runs) else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values: dict[str, Any] = {"cell": self.cell.name}
        for part in ("dev", "test"):
            if self:
                values[part] = round(self.mean(part), 4)
            if (deviation := self.deviation(part)) is not None:
                values[f"{part}_deviation"] = round(deviation, 4)
        return {**values, "runs": [run.to_dict() for run in self.runs]}

    def mixes(self) -> dict[str, dict[str, Any]]:
        """Return the mean of s_j and gamma over the seeds, by place."""
        found: dict[str, dict[str, Any]] = {}
        for place in self.runs[0].mixes if self else ():
            some = [run.mixes[place] for run in self.runs]
            weights = zip(*(mix["s"] for mix in some), strict=True)
            found[place] = {
                "s": [round(sum(column) / len(some), 4) for column in weights],
                "gamma": round(sum(mix["gamma"] for mix in some) / len(some), 4),
            }
        return found


def difference(base: Measured, other: Measured) -> Difference | None:
    """Compare two cells on the test examples, if both were run."""
    if not base or not other:
        return None
    tables, figure = [], None
    for measured in (base, other):
        tables.append([])
        for run in measured.runs:
            path = run.folder / "test.jsonl"
            rows, figure = counts_of(measured.cell.task, path, run.test)
            tables[-1].append(rows)
    assert figure is not None
    return paired_bootstrap(tables[0], tables[1], figure)


def error_reduction(base: float, other: float) -> float:
    """Return the share of the errors that are gone, in percent, as the paper counts it."""
    return 100 * (other - base) / (100 - base)


def curve(run: Finished | None, metric: str) -> list[float]:
    """Return the dev score after each epoch."""
    if run is None:
        return []
    lines = (run.folder / "metrics.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["dev"][metric] for line in lines]
