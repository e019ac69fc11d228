"""The runs published in results/tasks/*.json, which do not have to be repeated.

Predictions on licensed data are not published. For these runs, only the scores, the fine-tuning
gains and the curves of Figure 1 are available.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from finished import FinishedRun, describe_machines
from runs import Cell, Run, all_runs, task_settings

from elmokit.errors import DataError
from elmokit.progress import plural

RESULTS = Path(__file__).parents[2] / "results" / "tasks"

Values = dict[str, Any]


class PublishedRuns:
    """The published results that were made with the current settings of `runs.py`.

    Attributes:
        machines: The machines, oldest first.
        curves: By task, the dev scores by epoch of Figure 1.
        finetune_reports: By task, the report of fine-tuning the biLM.
        finetune_gains: By task, the gain of the fine-tuned biLM over the original biLM.
    """

    def __init__(self, results: Path | None = None) -> None:
        self.machines: list[Values] = []
        self.curves: dict[str, dict[str, list[float]]] = {}
        self.finetune_reports: dict[str, Values] = {}
        self.finetune_gains: dict[str, Values] = {}
        self._runs: dict[tuple[str, int], FinishedRun] = {}
        self._current_cells = {run.cell.name: run.cell for run in all_runs()}
        self._outdated: dict[tuple[str, str, str], set[tuple[str, int]]] = {}
        for path in sorted(results.glob("*.json")) if results else ():
            values = json.loads(path.read_text("utf-8"))
            if "tasks" in values:  # the directory also contains other files
                self._read(path, values)

    def get(self, cell: str, seed: int) -> FinishedRun | None:
        """Return the published run of a cell and seed."""
        return self._runs.get((cell, seed))

    def has(self, run: Run) -> bool:
        """Return whether a converged run is published, so that it does not have to be repeated."""
        published = self.get(run.cell.name, run.seed)
        return published is not None and published.is_converged

    @property
    def outdated(self) -> list[str]:
        """Describe the published runs that are ignored because of different settings."""
        return [
            f"{task}: ignoring {plural(len(runs), 'published run')} with different settings "
            f"({old}; runs.py has {new}). Run run.py again, or restore the settings in runs.py."
            for (task, old, new), runs in self._outdated.items()
        ]

    def _read(self, path: Path, values: Values) -> None:
        self.machines += [machine for machine in values["machines"] if machine not in self.machines]
        settings = values["settings"]
        for entry in _cells(values["tasks"]):
            cell = self._current_cells.get(entry["cell"])
            if cell is not None and entry["runs"]:
                made = describe_machines(values["machines"])
                self._add(path, cell, entry["runs"], settings, made)
        for task, entry in values["tasks"].items():
            if "finetune" in entry:
                self.finetune_reports[task] = entry["finetune"]
            old = _active_settings(settings.get(task), 1.0)
            if old != _active_settings(task_settings(task), 1.0):
                continue
            if "tuned_gain" in entry:
                self.finetune_gains[task] = entry["tuned_gain"]
            if "dev_by_epoch" in entry:
                self.curves[task] = entry["dev_by_epoch"]

    def _add(self, path: Path, cell: Cell, runs: list[Values], settings: Values, made: str) -> None:
        old = _active_settings(settings.get(cell.task), cell.share)
        new = _active_settings(task_settings(cell.task), cell.share)
        if old != new:
            key = (cell.task, _difference(old, new), _difference(new, old))
            outdated = self._outdated.setdefault(key, set())
            outdated |= {(cell.name, values["seed"]) for values in runs}
            return
        for values in runs:
            # Older files describe the machines only once for all runs.
            fields: Values = {"made": made, **values}
            run = FinishedRun(**fields)
            other = self._runs.setdefault((cell.name, run.seed), run)
            if other != run:
                raise DataError(
                    f"{path} has a test score of {run.test:.4f} for {cell.name} with seed "
                    f"{run.seed}, but another file in the same directory has {other.test:.4f}. "
                    "Use files from the same commit."
                )


def _cells(values: Any) -> Iterator[Values]:
    if isinstance(values, dict):
        if "cell" in values:
            yield values
        for inner in values.values():
            yield from _cells(inner)


def _active_settings(settings: Values | None, share: float) -> list[str]:
    """Return the preset and settings that apply to runs with a fraction of the data."""
    if settings is None:
        return []
    active = [f"preset {settings['preset']}", *settings["set"]]
    small = settings.get("little")
    return [*active, *small["set"]] if small and share <= small["share"] else active


def _difference(settings: list[str], others: list[str]) -> str:
    missing = (setting for setting in settings if setting not in others)
    return ", ".join(missing) or "none of these settings"
