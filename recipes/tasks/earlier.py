"""The runs that are published in results/tasks/*.json: they count without being made again.

Predictions of licensed data are not published, so of these runs only the figures are known, and
what was computed of the predictions: the intervals of Table 1 and the curves of Figure 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from finished import Finished, made_on
from runs import Cell, Run, all_runs, described

from elmokit.errors import DataError

RESULTS = Path(__file__).parents[2] / "results" / "tasks"

Values = dict[str, Any]


class Earlier:
    """What was published, as far as it was made with the settings that `runs.py` has now.

    Attributes:
        machines: What is noted of the machines, the first one first.
        refused: Lines about the runs that were made with other settings.
        gains: By task, the difference that Table 1 had, and the seeds its interval rests on.
        curves: By task, the dev scores by epoch of Figure 1.
        tuned: By task, what fine-tuning the biLM told.
        tuned_gains: By task, what the fine-tuned biLM gained over the one as it came.
    """

    def __init__(self, results: Path | None = None) -> None:
        self.machines: list[Values] = []
        self.gains: dict[str, Values] = {}
        self.curves: dict[str, dict[str, list[float]]] = {}
        self.tuned: dict[str, Values] = {}
        self.tuned_gains: dict[str, Values] = {}
        self._runs: dict[tuple[str, int], Finished] = {}
        self._known = {run.cell.name: run.cell for run in all_runs()}
        self._refused: dict[tuple[str, str, str], set[tuple[str, int]]] = {}
        for path in sorted(results.glob("*.json")) if results else ():
            values = json.loads(path.read_text("utf-8"))
            if "tasks" in values:  # others lie beside the tables
                self._read(path, values)

    def get(self, cell: str, seed: int) -> Finished | None:
        """Return the run that was published, by the name of its cell and its seed."""
        return self._runs.get((cell, seed))

    def has(self, run: Run) -> bool:
        """Tell whether a run need not be made again.

        One that time cut while it still rose is published only until its cell has a better one.
        """
        found = self.get(run.cell.name, run.seed)
        return found is not None and found.ripe

    @property
    def refused(self) -> list[str]:
        """Say which runs do not count, and why."""
        return [
            f"{task}: {len(runs)} published runs do not count: they were made with {before}; "
            f"runs.py now has {now}. Make them again with run.py, or set runs.py back."
            for (task, before, now), runs in self._refused.items()
        ]

    def _read(self, path: Path, values: Values) -> None:
        self.machines += [one for one in values["machines"] if one not in self.machines]
        settings = values["settings"]
        for told in _cells(values["tasks"]):
            cell = self._known.get(told["cell"])
            if cell is not None and told["runs"]:
                self._take(path, cell, told["runs"], settings, made_on(values["machines"]))
        for task, told in values["tasks"].items():
            if "finetune" in told:
                self.tuned[task] = told["finetune"]
            if _parts(settings.get(task), 1.0) != _parts(described(task), 1.0):
                continue
            if "tuned_gain" in told:
                self.tuned_gains[task] = told["tuned_gain"]
            if "difference" in told:
                sides = ("baseline", "elmo")
                seeds = {side: [run["seed"] for run in told[side]["runs"]] for side in sides}
                self.gains[task] = {"seeds": seeds} | told["difference"]
            if "dev_by_epoch" in told:
                self.curves[task] = told["dev_by_epoch"]

    def _take(
        self, path: Path, cell: Cell, runs: list[Values], settings: Values, made: str
    ) -> None:
        before = _parts(settings.get(cell.task), cell.share)
        now = _parts(described(cell.task), cell.share)
        if before != now:
            key = (cell.task, _without(before, now), _without(now, before))
            refused = self._refused.setdefault(key, set())
            refused |= {(cell.name, values["seed"]) for values in runs}
            return
        for values in runs:
            noted: Values = {"made": made, **values}  # there was one note for all runs of a file
            run = Finished(**noted)
            known = self._runs.setdefault((cell.name, run.seed), run)
            if known != run:
                raise DataError(
                    f"{path} has {run.test:.4f} on test for {cell.name} with seed {run.seed}, "
                    f"another file beside it {known.test:.4f}. All are written together: take "
                    "them from one commit."
                )


def _cells(values: Any) -> Iterator[Values]:
    if isinstance(values, dict):
        if "cell" in values:
            yield values
        for inner in values.values():
            yield from _cells(inner)


def _parts(settings: Values | None, share: float) -> list[str]:
    """Return what a run with a share of the data was made with."""
    if settings is None:
        return []
    parts = [f"preset {settings['preset']}", *settings["set"]]
    little = settings.get("little")
    return [*parts, *little["set"]] if little and share <= little["share"] else parts


def _without(some: list[str], others: list[str]) -> str:
    return ", ".join(part for part in some if part not in others) or "no such setting"
