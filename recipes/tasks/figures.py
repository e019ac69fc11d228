"""Draw the paper's two figures from our runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "elmokit"  # reproducible files

from matplotlib import pyplot  # noqa: E402

_STYLE = {"baseline": ("static", "tab:gray", "--"), "elmo": ("+ ELMo", "tab:blue", "-")}
_METADATA = {"Date": None}


def draw_curves(tasks: dict[str, Any], names: dict[str, str], path: Path) -> None:
    """Draw Figure 1: dev score by epoch, and test score by the fraction of the training data."""
    figure, axes = pyplot.subplots(len(tasks), 2, figsize=(9, 3.2 * len(tasks)), squeeze=False)
    for (left, right), (task, results) in zip(axes, tasks.items(), strict=True):
        for key, (label, color, line) in _STYLE.items():
            scores = results["dev_by_epoch"][key]
            left.plot(range(1, len(scores) + 1), scores, line, color=color, label=label)
            points = [
                (100 * float(share), pair[key]["test"])
                for share, pair in results["shares"].items()
                if "test" in pair[key]
            ]
            if points:
                right.plot(*zip(*points, strict=True), f"o{line}", color=color, label=label)
        left.set(title=names[task], xlabel="epoch", ylabel="dev")
        right.set(title=names[task], xlabel="training data, %", ylabel="test", xscale="log")
        right.set_xlim(0.8, 125)
        for axis in (left, right):
            if axis.lines:
                axis.legend(loc="lower right")
            axis.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(path, metadata=_METADATA)
    pyplot.close(figure)


def draw_weights(tasks: dict[str, Any], names: dict[str, str], path: Path) -> None:
    """Draw Figure 2: the learned weights s_j of each task, at the input and at the output."""
    places = ("input", "output")
    figure, axes = pyplot.subplots(1, 2, figsize=(9, 1 + 0.45 * max(1, len(names))))
    for axis, place in zip(axes, places, strict=True):
        rows = {
            f"{names[task].split(',')[0]} ({elmo_place})": mixes[place]["s"]
            for task, by_elmo_place in tasks.items()
            for elmo_place, mixes in by_elmo_place.items()
            if place in mixes
        }
        axis.set_title(f"{place} layer")
        if not rows:
            axis.text(0.5, 0.5, "not run", ha="center", va="center")
            axis.set_axis_off()
            continue
        table = list(rows.values())
        axis.imshow(table, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axis.set_yticks(range(len(rows)), list(rows))
        axis.set_xticks(range(len(table[0])), [f"$s_{j}$" for j in range(len(table[0]))])
        for i, weights in enumerate(table):
            for j, weight in enumerate(weights):
                color = "white" if weight > 0.6 else "black"
                axis.text(j, i, f"{weight:.2f}", ha="center", va="center", color=color)
    figure.tight_layout()
    figure.savefig(path, metadata=_METADATA)
    pyplot.close(figure)
