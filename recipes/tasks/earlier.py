"""The runs published in results/tasks/*.json, which do not have to be repeated.

Predictions on licensed data are not published. For these runs, only the scores are available, and
what was computed from the predictions: the fine-tuning gains and the curves of Figure 1.
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
    """The published results that were made with the current settings of `runs.py`.

    Attributes:
        machines: The machines, oldest first.
        curves: By task, the dev scores by epoch of Figure 1.
        tuned: By task, the report of fine-tuning the biLM.
        tuned_gains: By task, the gain of the fine-tuned biLM over the original one.
    """

    def __init__(self, results: Path | None = None) -> None:
        self.machines: list[Values] = []
        self.curves: dict[str, dict[str, list[float]]] = {}
        self.tuned: dict[str, Values] = {}
        self.tuned_gains: dict[str, Values] = {}
        self._runs: dict[tuple[str, int], Finished] = {}
        self._known = {run.cell.name: run.cell for run in all_runs()}
        self._outdated: dict[tuple[str, str, str], set[tuple[str, int]]] = {}
        for path in sorted(results.glob("*.json")) if results else ():
            values = json.loads(path.read_text("utf-8"))
            if "tasks" in values:  # the directory also contains other files
                self._read(path, values)

    def get(self, cell: str, seed: int) -> Finished | None:
        """Return the published run of a cell and seed."""
        return self._runs.get((cell, seed))

    def has(self, run: Run) -> bool:
        """Return whether a converged run is published, which does not have to be repeated."""
        published = self.get(run.cell.name, run.seed)
        return published is not None and published.is_converged

    @property
    def outdated(self) -> list[str]:
        """Describe the published runs that are ignored because of different settings."""
        return [
            f"{task}: ignoring {len(runs)} published runs with different settings ({before}; "
            f"runs.py has {now}). Repeat them with run.py, or restore the settings in runs.py."
            for (task, before, now), runs in self._outdated.items()
        ]

    def _read(self, path: Path, values: Values) -> None:
        self.machines += [one for one in values["machines"] if one not in self.machines]
        settings = values["settings"]
        for entry in _cells(values["tasks"]):
            cell = self._known.get(entry["cell"])
            if cell is not None and entry["runs"]:
                self._add(path, cell, entry["runs"], settings, made_on(values["machines"]))
        for task, entry in values["tasks"].items():
            if "finetune" in entry:
                self.tuned[task] = entry["finetune"]
            if _parts(settings.get(task), 1.0) != _parts(described(task), 1.0):
                continue
            if "tuned_gain" in entry:
                self.tuned_gains[task] = entry["tuned_gain"]
            if "dev_by_epoch" in entry:
                self.curves[task] = entry["dev_by_epoch"]

    def _add(self, path: Path, cell: Cell, runs: list[Values], settings: Values, made: str) -> None:
        before = _parts(settings.get(cell.task), cell.share)
        now = _parts(described(cell.task), cell.share)
        if before != now:
            key = (cell.task, _without(before, now), _without(now, before))
            outdated = self._outdated.setdefault(key, set())
            outdated |= {(cell.name, values["seed"]) for values in runs}
            return
        for values in runs:
            fields: Values = {"made": made, **values}  # older files record it once for all runs
            run = Finished(**fields)
            known = self._runs.setdefault((cell.name, run.seed), run)
            if known != run:
                raise DataError(
                    f"{path} has a test score of {run.test:.4f} for {cell.name} with seed "
                    f"{run.seed}, but another file in the same directory has {known.test:.4f}. "
                    "Use files from the same commit."
                )


def _cells(values: Any) -> Iterator[Values]:
    if isinstance(values, dict):
        if "cell" in values:
            yield values
        for inner in values.values():
            yield from _cells(inner)


def _parts(settings: Values | None, share: float) -> list[str]:
    """Return the preset and settings of a run with a fraction of the data."""
    if settings is None:
        return []
    parts = [f"preset {settings['preset']}", *settings["set"]]
    little = settings.get("little")
    return [*parts, *little["set"]] if little and share <= little["share"] else parts


def _without(some: list[str], others: list[str]) -> str:
    return ", ".join(part for part in some if part not in others) or "none of these settings"
