"""Aggregate runs: means over seeds, learning curves, learned weights."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counts import METRIC
from finished import FinishedRun, read_finished
from published_runs import PublishedRuns
from runs import SEEDS, Cell, Run


@dataclass(frozen=True)
class RunSource:
    """The finished runs of a directory and the published runs.

    Attributes:
        folder: The output directory of run.py.
        published: The published runs.
    """

    folder: Path
    published: PublishedRuns

    def find(self, run: Run) -> FinishedRun | None:
        """Return a finished run, from the directory if possible, otherwise a published one.

        A run that had not converged at the time limit does not replace one that had.
        """
        new = read_finished(self.folder, run)
        old = self.published.get(run.cell.name, run.seed)
        keep_old = new is None or (old is not None and old.is_converged and not new.is_converged)
        return old if keep_old else new


class CellResults:
    """The finished runs of a cell, possibly none.

    Runs that had not converged at the time limit are ignored. If a cell has only such runs, the
    longest one is used and marked with an asterisk.
    """

    def __init__(self, source: RunSource, cell: Cell) -> None:
        by_seed = (source.find(Run(cell, seed)) for seed in SEEDS)
        runs = [run for run in by_seed if run is not None]
        longest = sorted(runs, key=lambda run: run.epochs)[-1:]
        self.cell = cell
        self.runs = [run for run in runs if run.is_converged] or longest

    def __bool__(self) -> bool:
        return bool(self.runs)

    def scores(self, part: str) -> list[float]:
        """Return the scores of all seeds, on "dev" or "test"."""
        return [getattr(run, part) for run in self.runs]

    def mean(self, part: str) -> float:
        """Return the mean over the seeds."""
        return sum(self.scores(part)) / len(self.runs)

    def deviation(self, part: str) -> float | None:
        """Return the sample standard deviation over the seeds. None for a single run."""
        if len(self.runs) < 2:
            return None
        mean = self.mean(part)
        return math.sqrt(sum((x - mean) ** 2 for x in self.scores(part)) / (len(self.runs) - 1))

    def format(self, part: str) -> str:
        """Format mean and deviation, with an asterisk if the time limit stopped a run."""
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
        means: dict[str, dict[str, Any]] = {}
        for place in self.runs[0].mixes if self else ():
            mixes = [run.mixes[place] for run in self.runs]
            weights = zip(*(mix["s"] for mix in mixes), strict=True)
            means[place] = {
                "s": [round(sum(column) / len(mixes), 4) for column in weights],
                "gamma": round(sum(mix["gamma"] for mix in mixes) / len(mixes), 4),
            }
        return means


def dev_curve(results: CellResults, published: list[float]) -> list[float]:
    """Return the dev score after each epoch of the first run, if there is one."""
    if not results:
        return []
    folder = results.runs[0].folder
    if folder is None:
        return published
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    metric = METRIC[results.cell.task]
    return [json.loads(line)["dev"][metric] for line in lines]
