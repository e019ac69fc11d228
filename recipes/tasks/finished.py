"""The scores of a finished run, from its directory or from the published JSON files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counts import METRIC
from runs import Run

MACHINES = "machines.jsonl"
#: A run stopped by the time limit has converged if its last epochs, at least this many, did not
#: improve the score.
_MIN_EPOCHS_AFTER_BEST = 2


@dataclass(frozen=True)
class FinishedRun:
    """A finished run. The fields have the names in the JSON files.

    Attributes:
        seed: The random seed.
        dev: The best score on the dev data.
        test: The score of the same weights on the test data.
        epochs: The number of epochs.
        best_epoch: The epoch whose weights were kept.
        cut: Whether the time limit stopped the run.
        seconds: The duration.
        mixes: The learned s_j and gamma, by place ("input" or "output").
        made: Dates and devices of the machines that wrote to its directory.
        folder: The directory of the run. None if only its scores are known.
    """

    seed: int
    dev: float
    test: float
    epochs: int
    best_epoch: int
    cut: bool
    seconds: float
    mixes: dict[str, Any]
    made: str
    folder: Path | None = None

    @property
    def is_converged(self) -> bool:
        """Whether the run ended by itself, or was past its best epoch at the time limit."""
        return not self.cut or self.epochs - self.best_epoch >= _MIN_EPOCHS_AFTER_BEST

    @property
    def predictions(self) -> Path | None:
        """The file with the predictions on the test data, if it exists."""
        path = self.folder / "test.jsonl" if self.folder else None
        return path if path and path.is_file() else None

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values. Scores are not rounded, so that their means are reproducible."""
        return {
            "seed": self.seed,
            "dev": self.dev,
            "test": self.test,
            "epochs": self.epochs,
            "best_epoch": self.best_epoch,
            "cut": self.cut,
            "seconds": self.seconds,
            "mixes": self.mixes,
            "made": self.made,
        }


def read_finished(out: Path, run: Run) -> FinishedRun | None:
    """Read a run from the output directory of run.py. Return None if it is not finished."""
    folder = out / run.name
    try:
        values = json.loads((folder / "config.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    results, metric = values["results"], METRIC[run.cell.task]
    return FinishedRun(
        seed=run.seed,
        dev=results["dev"][metric],
        test=results["test"][metric],
        epochs=results["epochs"],
        best_epoch=results["best_epoch"],
        # `run.py --measure` finishes a run by setting the number of epochs to 1.
        cut=values["config"]["train"]["epochs"] == 1
        or results["epochs"] > values["config"]["train"]["epochs"],
        seconds=results["seconds"],
        mixes=results["mixes"],
        made=describe_machines(read_machines(out)),
        folder=folder,
    )


def read_machines(out: Path) -> list[dict[str, Any]]:
    """Return the machines that run.py recorded for a directory of runs."""
    path = out / MACHINES
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def describe_machines(machines: list[dict[str, Any]]) -> str:
    """Format the dates and devices of machines."""
    descriptions = dict.fromkeys(f"{machine['date']}, {machine['device']}" for machine in machines)
    return "; ".join(descriptions) or "not recorded"
