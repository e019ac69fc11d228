"""Draw what each layer knows and list it, from the figures in results/. Nothing is measured here.

Run as, from the root of the repository:
    python recipes/layer-chart.py
Reads results/probes/{pos,wsd,english-original}.json and results/analysis/{wic,morphology,minilm}
.json (made by recipes/probes.py, analysis-figures.py and minilm.py), writes
docs/img/layers-know.svg and the tables of docs/explanation/what-each-layer-knows.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from marks import between

from elmokit.plot.drawing import Drawing, Line, Mark, Text
from elmokit.plot.svg import to_svg
from elmokit.probes.published import POS_LAYERS, WSD_LAYERS

# Narrow, so that a telephone can show it without making the writing too small to read.
_WIDTH, _LEFT, _PANEL_WIDTH, _PANEL_HEIGHT, _GAP = 480.0, 40.0, 182.0, 170.0, 62.0
_TOP = 114.0
LAYERS = ("layer 0", "layer 1", "layer 2")
KINDS = ("inflected", "derived", "compound", "misspelt", "made-up", "look-alike")
# Who is drawn, in which colour and shape.
LOOK = {
    "english": ("blue", "circle"),
    "english-original": ("orange", "square"),
    "Peters et al. 2018": ("green", "diamond"),
    "GloVe, 50 numbers": ("grey", "triangle"),
}


@dataclass(frozen=True)
class Point:
    """A figure in percent, and the ends of its 95% interval if it is known."""

    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Panel:
    """One instrument.

    Attributes:
        title: What was measured.
        unit: In what.
        ticks: Where the grid is drawn; the first and last are the ends of the scale.
        series: For each model, the points of the layers that have one.
        baseline: What is known without context: its name and figure.
    """

    title: str
    unit: str
    ticks: tuple[int, ...]
    series: dict[str, dict[str, Point]]
    baseline: tuple[str, float]


def main() -> None:
    """Read, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=Path("docs/img/layers-know.svg"))
    parser.add_argument(
        "--page", type=Path, default=Path("docs/explanation/what-each-layer-knows.md")
    )
    args = parser.parse_args()
    panels, related = read_panels(args.results), read_related(args.results)
    args.out.write_text(to_svg(draw(panels, related)), "utf-8")
    text = between(args.page.read_text("utf-8"), "layers", layer_table(panels))
    args.page.write_text(between(text, "morphology", related_table(related)), "utf-8")


# ------------------------------------------------------------------------------------------ reading


def read_panels(results: Path) -> list[Panel]:
    """Read the figures of the three instruments that look at layers."""
    original = _json(results / "probes/english-original.json")
    pos = _named(_json(results / "probes/pos.json")["runs"])["XPOS, precision exact"]
    wsd = _named(_json(results / "probes/wsd.json")["runs"])["Precision fast"]
    wic = _json(results / "analysis/wic.json")
    ours = {"english": (pos, wsd, wic)}
    ours["english-original"] = (original["pos"], original["wsd"], original["wic"])

    def series(which: int, figure: Any) -> dict[str, dict[str, Point]]:
        return {
            model: {
                layer: figure(found)
                for layer, found in _named(parts[which]["results"]).items()
                if layer in LAYERS
            }
            for model, parts in ours.items()
        }

    def accuracy(found: dict[str, Any]) -> Point:
        return _point(found["accuracy"], found["interval"])

    paper = {
        instrument: {layer: Point(figures.bilm) for layer, figures in published.items()}
        for instrument, published in (("pos", POS_LAYERS), ("wsd", WSD_LAYERS))
    }
    tag = _named(pos["results"])["most frequent tag"]["accuracy"]
    sense = _named(wsd["results"])["first sense of WordNet"]["f1"]["ALL"]
    form = _named(wic["results"])["same form"]["overall"]["accuracy"]
    return [
        Panel(
            "Parts of speech",
            "accuracy of a linear probe, %",
            (80, 85, 90, 95, 100),
            series(0, accuracy) | {"Peters et al. 2018": paper["pos"]},
            ("most frequent tag", 100 * tag),
        ),
        Panel(
            "Word senses",
            "F1 of the nearest sense, %",
            (45, 50, 55, 60, 65, 70),
            series(1, lambda found: _point(found["f1"]["ALL"], found["interval"]))
            | {"Peters et al. 2018": paper["wsd"]},
            ("first sense", 100 * sense),
        ),
        Panel(
            "Same sense or not",
            "accuracy of a cosine, %",
            (50, 55, 60, 65, 70),
            series(2, lambda found: accuracy(found["overall"])),
            ("same form", 100 * form),
        ),
    ]


def read_related(results: Path) -> dict[str, dict[str, float]]:
    """Read how many related words of each kind are among the ten nearest, in percent."""
    english = _json(results / "analysis/morphology.json")
    by_model = {
        "english": english["layer_0"],
        "english-original": _json(results / "analysis/minilm.json")["morphology"]["figures"][
            "english-original, layer 0"
        ],
        "GloVe, 50 numbers": english["static_figures"],
    }
    return {
        model: {kind: 100 * figures[kind]["in_ten"] for kind in KINDS if kind in figures}
        for model, figures in by_model.items()
    }


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def _named(items: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in items}


def _point(value: float, interval: Sequence[float]) -> Point:
    return Point(100 * value, (100 * interval[0], 100 * interval[1]))


# ------------------------------------------------------------------------------------------- tables


def layer_table(panels: Sequence[Panel]) -> list[str]:
    """Return the figures of the layers as a table in Markdown."""
    lines = [f"| | | {' | '.join(LAYERS)} |", "|---|---|" + "---|" * len(LAYERS)]
    for panel in panels:
        name, value = panel.baseline
        lines.append(f"| {panel.title} | *{name}: {value:.1f}* |" + " |" * len(LAYERS))
        for model, points in panel.series.items():
            cells = (f"{points[x].value:.1f}" if x in points else "" for x in LAYERS)
            lines.append(f"| | {model} | {' | '.join(cells)} |")
    return lines


def related_table(related: dict[str, dict[str, float]]) -> list[str]:
    """Return the figures of related words as a table in Markdown."""
    lines = [
        f"| % among the ten nearest | {' | '.join(related)} |",
        "|---|" + "---|" * len(related),
    ]
    for kind in KINDS:
        cells = (f"{shares[kind]:.0f}" if kind in shares else "" for shares in related.values())
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


# ------------------------------------------------------------------------------------------ drawing


def draw(panels: Sequence[Panel], related: dict[str, dict[str, float]]) -> Drawing:
    """Draw four panels, two by two, under one legend."""
    drawing = Drawing(
        _WIDTH,
        _TOP + 2 * _PANEL_HEIGHT + 120,
        "What each layer knows",
        "Layer 0 knows the word alone, layers 1 and 2 its sentence. Layer 1 knows parts of speech "
        "best, layer 2 senses. Thin lines are 95% intervals. The paper's parts of speech are those "
        "of the Penn Treebank, ours of UD EWT: the order of layers compares, not the height. Last "
        "panel: related words that are among the ten nearest of 20,000 in layer 0.",
    )
    for i, (name, (colour, shape)) in enumerate(LOOK.items()):
        x, y = 16 + (i % 2) * 240, 20 + (i // 2) * 24
        drawing.shapes += [Mark(x, y, 6, colour, shape), Text(x + 14, y + 5, name, 14)]
    for i, panel in enumerate(panels):
        left = _LEFT + (i % 2) * (_PANEL_WIDTH + _GAP)
        _draw_panel(drawing, panel, left, _TOP + (i // 2) * (_PANEL_HEIGHT + 88))
    _draw_related(drawing, related, _LEFT + _PANEL_WIDTH + _GAP, _TOP + _PANEL_HEIGHT + 88)
    return drawing


def _title(drawing: Drawing, left: float, top: float, title: str, unit: str) -> None:
    drawing.shapes += [
        Text(left - 28, top - 28, title, 15, bold=True),
        Text(left - 28, top - 11, unit, 12.5, colour="faint"),
    ]


def _draw_panel(drawing: Drawing, panel: Panel, left: float, top: float) -> None:
    _title(drawing, left, top, panel.title, panel.unit)
    low, high = panel.ticks[0], panel.ticks[-1]

    def height(value: float) -> float:
        return top + _PANEL_HEIGHT * (high - value) / (high - low)

    for tick in panel.ticks:
        y = height(tick)
        drawing.shapes += [
            Line(left, y, left + _PANEL_WIDTH, y),
            Text(left - 6, y + 4, str(tick), 12.5, "end", "faint"),
        ]
    name, value = panel.baseline
    y = height(value)
    drawing.shapes += [
        Line(left, y, left + _PANEL_WIDTH, y, "faint", 1.5),
        Text(left + _PANEL_WIDTH, y + 15, name, 12.5, "end", "faint"),
    ]
    for j, layer in enumerate(LAYERS):
        x = left + _PANEL_WIDTH * (j + 0.5) / len(LAYERS)
        drawing.shapes.append(Text(x, top + _PANEL_HEIGHT + 18, layer, 13, "middle"))
    for i, (model, points) in enumerate(panel.series.items()):
        colour, shape = LOOK[model]
        # A little apart, so that intervals do not hide each other.
        places = {
            layer: left + _PANEL_WIDTH * (j + 0.5) / len(LAYERS) + (i - 0.5) * 8
            for j, layer in enumerate(LAYERS)
            if layer in points
        }
        steps = list(places)
        for a, b in pairwise(steps):
            ends = (places[a], height(points[a].value), places[b], height(points[b].value))
            drawing.shapes.append(Line(*ends, colour, 1.5))
        for layer, x in places.items():
            point = points[layer]
            if point.interval is not None:
                below, above = map(height, point.interval)
                drawing.shapes.append(Line(x, below, x, above, colour, 2.5))
            hover = f"{model}, {layer}: {point.value:.1f}"
            drawing.shapes.append(Mark(x, height(point.value), 5, colour, shape, hover))


def _draw_related(
    drawing: Drawing, related: dict[str, dict[str, float]], left: float, top: float
) -> None:
    _title(drawing, left, top, "Related words, layer 0", "% among the ten nearest")
    start, width = left + 44, _PANEL_WIDTH - 52
    for tick in (0, 50, 100):
        x = start + width * tick / 100
        drawing.shapes += [
            Line(x, top, x, top + _PANEL_HEIGHT),
            Text(x, top + _PANEL_HEIGHT + 18, str(tick), 13, "middle", "faint"),
        ]
    for row, kind in enumerate(KINDS):
        y = top + _PANEL_HEIGHT * (row + 0.5) / len(KINDS)
        drawing.shapes.append(Text(start - 10, y + 4, kind, 12.5, "end"))
        for model, shares in related.items():
            if kind in shares:
                colour, shape = LOOK[model]
                x = start + width * shares[kind] / 100
                hover = f"{model}, {kind}: {shares[kind]:.0f}"
                drawing.shapes.append(Mark(x, y, 5, colour, shape, hover))


if __name__ == "__main__":
    main()
