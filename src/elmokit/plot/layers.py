"""Heat maps of the learned layer weights of task models, as in Figure 2 of the paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from elmokit.errors import ConfigError
from elmokit.plot.figure import GRAY, SHADES, ElmoFigure, format_label
from elmokit.tasks.saved import read_config

#: The weights "s" and the scale "gamma" of each mix, keyed by the name of the task model and then
#: by the place where ELMo is added, "input" or "output".
Mixes = Mapping[str, Mapping[str, Any]]


def read_mixes(folders: Sequence[str | Path]) -> Mixes:
    """Read the learned mixes of task directories.

    A model is named after its task. If several models have the same task, the name of the directory
    is appended.
    """
    tasks, mixes = [], []
    for folder in map(Path, folders):
        values = read_config(folder)
        try:
            mixes.append(
                {
                    place: {"s": [float(s) for s in mix["s"]], "gamma": float(mix["gamma"])}
                    for place, mix in values["results"]["mixes"].items()
                }
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{folder} contains no valid layer weights ({error!r}). Expected a directory "
                "written by `elmo task NAME train`."
            ) from error
        if not mixes[-1]:
            raise ConfigError(
                f"{folder} has no layer weights, because the model was trained without ELMo. Omit "
                "this directory."
            )
        tasks.append(str(values["task"]))
    names = [
        f"{task} ({Path(folder).resolve().name})" if tasks.count(task) > 1 else task
        for task, folder in zip(tasks, folders, strict=True)
    ]
    return dict(zip(names, mixes, strict=True))


def draw_layers(models: Mixes) -> ElmoFigure:
    """Draw the layer weights, with one column per model and one panel per place (input, output)."""
    places = [
        place for place in ("input", "output") if any(place in mixes for mixes in models.values())
    ]
    n_layers = max(len(mix["s"]) for mixes in models.values() for mix in mixes.values())
    figure = ElmoFigure(
        max(1.05 * len(models) + 1.8, 5.5),
        len(places) * (0.42 * n_layers + 0.9) + 0.4,
        f"Learned layer weights per task (uniform: {1 / n_layers:.2f})",
        "s_j, the softmax-normalized weight of each layer in ELMo_k = gamma sum_j s_j h_kj, at "
        "the input and the output of the task model (see Figure 2 of the paper).",
        layout="constrained",
    )
    panels = figure.subplots(len(places), 1, squeeze=False)[:, 0]
    for axes, place in zip(panels, places, strict=True):
        _draw_panel(axes, models, place, n_layers)
    return figure


def _draw_panel(axes: Axes, models: Mixes, place: str, n_layers: int) -> None:
    weights = np.full((n_layers, len(models)), np.nan)
    labels = []
    for column, (name, mixes) in enumerate(models.items()):
        label = format_label(name, 14)
        if place in mixes:
            s = mixes[place]["s"]
            weights[: len(s), column] = s
            label += f"\ngamma {mixes[place]['gamma']:.2f}"
            for j, weight in enumerate(s):
                color = "white" if weight > 0.6 else "black"
                axes.text(column, j, f"{weight:.3f}", ha="center", va="center", color=color)
        else:
            axes.text(column, (n_layers - 1) / 2, "none", ha="center", va="center", color=GRAY)
        labels.append(label)
    axes.imshow(weights, cmap=SHADES, vmin=0, vmax=1, origin="lower", aspect="auto")
    axes.set_title(place, loc="left", fontweight="bold")
    axes.set_xticks(range(len(models)), labels)
    names = ["layer 0 (words)", *(f"layer {j}" for j in range(1, n_layers))]
    axes.set_yticks(range(n_layers), names)
    axes.tick_params(length=0)
