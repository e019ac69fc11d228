"""A run that has ended: its figures, from its folder or from the JSON values of the tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counts import METRIC
from runs import Run

MACHINES = "machines.jsonl"
#: Epochs without a better score after which a run that was cut still counts.
_PAST_BEST = 2


@dataclass(frozen=True)
class Finished:
    """A run that has ended.

    Attributes:
        seed: Its seed.
        dev: The best score on the dev data.
        test: The score of the same weights on the test data.
        epochs: Epochs it had.
        best_epoch: The one that was kept.
        cut: Whether time ran out before it would have stopped.
        seconds: Time it took.
        mixes: Learned s_j and gamma, by place.
        made: Dates and devices of the machines that worked on its folder.
        folder: Where it is; None if only its figures are known.
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
    def ripe(self) -> bool:
        """Whether it stopped by itself, or was at least past its best epoch when time was over."""
        return not self.cut or self.epochs - self.best_epoch >= _PAST_BEST

    @property
    def predictions(self) -> Path | None:
        """What it predicted on the test data, if that is here."""
        path = self.folder / "test.jsonl" if self.folder else None
        return path if path and path.is_file() else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values; scores in full, so that means of them come out the same."""
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


def finished(out: Path, run: Run) -> Finished | None:
    """Return a run of a folder if it has ended."""
    folder = out / run.name
    try:
        values = json.loads((folder / "config.json").read_text("utf-8"))
    except FileNotFoundError:
        return None
    results, metric = values["results"], METRIC[run.cell.task]
    return Finished(
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
        made=made_on(machines(out)),
        folder=folder,
    )


def machines(out: Path) -> list[dict[str, Any]]:
    """Return what run.py noted of the machines that worked on a folder."""
    path = out / MACHINES
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def made_on(some: list[dict[str, Any]]) -> str:
    """Name machines by date and device."""
    names = dict.fromkeys(f"{machine['date']}, {machine['device']}" for machine in some)
    return "; ".join(names) or "not noted"
