"""The layers that task models learned to use: Figure 2 of the paper, for any task directories."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elmokit.errors import ConfigError
from elmokit.plot.drawing import Drawing, Rect, Text, shorten
from elmokit.tasks.saved import is_task_dir, read_config

_CELL_WIDTH, _CELL_HEIGHT = 100.0, 40.0
_LEFT, _TOP, _GAP = 150.0, 100.0, 40.0
PLACES = ("input", "output")


@dataclass(frozen=True)
class Learned:
    """The mixes of one task model.

    Attributes:
        name: What to call it.
        mixes: For the places where ELMo enters, s and gamma.
    """

    name: str
    mixes: dict[str, tuple[list[float], float]]


def read_mixes(folders: Sequence[str | Path]) -> list[Learned]:
    """Read what the models of some task directories learned."""
    found = []
    for folder in map(Path, folders):
        if not is_task_dir(folder):
            raise ConfigError(
                f"There is no trained task model in {folder}. Make one with: elmo task NAME train"
            )
        values = read_config(folder)
        try:
            mixes = {
                str(place): ([float(s) for s in mix["s"]], float(mix["gamma"]))
                for place, mix in values["results"]["mixes"].items()
            }
            name = str(values["task"])
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"{folder} does not tell the layer weights it learned ({error!r})."
            ) from error
        if not mixes:
            raise ConfigError(f"The model in {folder} uses no ELMo, so it has no layer weights.")
        found.append(Learned(name, mixes))
    names = [learned.name for learned in found]
    return [
        Learned(f"{learned.name} ({Path(folder).resolve().name})", learned.mixes)
        if names.count(learned.name) > 1
        else learned
        for learned, folder in zip(found, folders, strict=True)
    ]


def mixes_to_dict(learned: Sequence[Learned]) -> dict[str, Any]:
    """Return plain JSON values."""
    return {
        one.name: {place: {"s": s, "gamma": gamma} for place, (s, gamma) in one.mixes.items()}
        for one in learned
    }


def draw_layers(learned: Sequence[Learned]) -> Drawing:
    """Draw the weights of the layers: a column for each task, a block for each place."""
    places = [place for place in PLACES if any(place in one.mixes for one in learned)]
    n_layers = max(len(s) for one in learned for s, _ in one.mixes.values())
    block = 34 + n_layers * _CELL_HEIGHT + 28
    drawing = Drawing(
        max(_LEFT + len(learned) * _CELL_WIDTH + 30, 520),
        _TOP + len(places) * (block + _GAP) - 10,
        "Layer weights that the tasks learned",
        "s_j, the softmax-normalised weight of each layer in ELMo_k = gamma sum_j s_j h_kj, where "
        "ELMo enters at the input and at the output of the task model (Figure 2 of the paper). "
        "The darker, the more weight; all layers alike would be "
        f"{1 / n_layers:.2f} each.",
    )
    drawing.head(f"s per layer; all alike would be {1 / n_layers:.2f} each", 20)
    for i, place in enumerate(places):
        _block(drawing, learned, place, n_layers, _TOP + i * (block + _GAP))
    return drawing


def _block(
    drawing: Drawing, learned: Sequence[Learned], place: str, n_layers: int, y: float
) -> None:
    drawing.add(Text(20, y, f"{place}", 13, bold=True))
    for j in range(n_layers):
        middle = y + 14 + (n_layers - 1 - j + 0.5) * _CELL_HEIGHT
        label = "layer 0 (words)" if j == 0 else f"layer {j}"
        drawing.add(Text(_LEFT - 10, middle + 4, label, anchor="end"))
    bottom = y + 14 + n_layers * _CELL_HEIGHT
    drawing.add(Text(_LEFT - 10, bottom + 18, "gamma", 11, "end", "faint"))
    for column, one in enumerate(learned):
        x = _LEFT + column * _CELL_WIDTH
        middle = x + _CELL_WIDTH / 2 - 1
        drawing.add(Text(middle, y + 6, shorten(one.name, 14), 12, "middle", bold=True))
        if place not in one.mixes:
            drawing.add(Text(middle, y + 14 + n_layers * 20, "none", 12, "middle", "faint"))
            continue
        s, gamma = one.mixes[place]
        for j, weight in enumerate(s):
            top = y + 14 + (n_layers - 1 - j) * _CELL_HEIGHT
            shade = round(min(max(weight, 0.0), 1.0), 3)
            title = f"{one.name}, {place}, layer {j}: {weight:.4f}"
            cell = (x, top, _CELL_WIDTH - 2, _CELL_HEIGHT - 2)
            ink = "paper" if shade > 0.6 else "ink"
            drawing.add(
                Rect(*cell, "grid", 0.25),
                Rect(*cell, "blue", shade, title),
                Text(middle, top + 24, f"{weight:.3f}", 12, "middle", ink),
            )
        drawing.add(Text(middle, bottom + 18, f"{gamma:.2f}", 11, "middle", "faint"))
