"""Learned layer weights of task models, as in Figure 2 of the paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from elmokit.errors import ConfigError
from elmokit.plot.figure import GRAY, SHADES, Picture, readable
from elmokit.tasks.saved import is_task_dir, read_config

PLACES = ("input", "output")


@dataclass(frozen=True)
class Learned:
    """The mixes of one task model.

    Attributes:
        name: Name in the figure.
        mixes: s and gamma of each place where ELMo is added.
    """

    name: str
    mixes: dict[str, tuple[list[float], float]]


def read_mixes(folders: Sequence[str | Path]) -> list[Learned]:
    """Read the mixes of some task directories."""
    models = []
    for folder in map(Path, folders):
        if not is_task_dir(folder):
            raise ConfigError(
                f"{folder} contains no trained task model. Train one with: elmo task NAME train"
            )
        values = read_config(folder)
        try:
            mixes = {
                str(place): ([float(s) for s in mix["s"]], float(mix["gamma"]))
                for place, mix in values["results"]["mixes"].items()
            }
            name = str(values["task"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"{folder} contains no valid layer weights ({error!r}).") from error
        if not mixes:
            raise ConfigError(f"The model in {folder} does not use ELMo and has no layer weights.")
        models.append(Learned(name, mixes))
    names = [model.name for model in models]
    return [
        replace(model, name=f"{model.name} ({Path(folder).resolve().name})")
        if names.count(model.name) > 1
        else model
        for model, folder in zip(models, folders, strict=True)
    ]


def mixes_to_dict(learned: Sequence[Learned]) -> dict[str, Any]:
    """Return plain JSON values."""
    return {
        one.name: {place: {"s": s, "gamma": gamma} for place, (s, gamma) in one.mixes.items()}
        for one in learned
    }


def draw_layers(learned: Sequence[Learned]) -> Picture:
    """Draw the weights of the layers: one column per task, one block per place."""
    places = [place for place in PLACES if any(place in one.mixes for one in learned)]
    n_layers = max(len(s) for one in learned for s, _ in one.mixes.values())
    picture = Picture(
        max(1.05 * len(learned) + 1.8, 5.5),
        len(places) * (0.42 * n_layers + 0.9) + 0.4,
        f"Learned layer weights per task (uniform: {1 / n_layers:.2f})",
        "s_j, the softmax-normalized weight of each layer in ELMo_k = gamma sum_j s_j h_kj, at "
        "the input and the output of the task model (see Figure 2 of the paper).",
        layout="constrained",
    )
    panels = picture.subplots(len(places), 1, squeeze=False)[:, 0]
    for axes, place in zip(panels, places, strict=True):
        _block(axes, learned, place, n_layers)
    return picture


def _block(axes: Axes, learned: Sequence[Learned], place: str, n_layers: int) -> None:
    weights = np.full((n_layers, len(learned)), np.nan)
    labels = []
    for column, one in enumerate(learned):
        s, gamma = one.mixes.get(place, ([], None))
        weights[: len(s), column] = s
        for j, weight in enumerate(s):
            ink = "white" if weight > 0.6 else "black"
            axes.text(column, j, f"{weight:.3f}", ha="center", va="center", color=ink)
        if gamma is None:
            axes.text(column, (n_layers - 1) / 2, "none", ha="center", va="center", color=GRAY)
        labels.append(readable(one.name, 14) + ("" if gamma is None else f"\ngamma {gamma:.2f}"))
    axes.imshow(weights, cmap=SHADES, vmin=0, vmax=1, origin="lower", aspect="auto")
    axes.set_title(place, loc="left", fontweight="bold")
    axes.set_xticks(range(len(learned)), labels)
    axes.set_yticks(
        range(n_layers), ["layer 0 (words)", *(f"layer {j}" for j in range(1, n_layers))]
    )
    axes.tick_params(length=0)
