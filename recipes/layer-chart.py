"""Draw the chart and write the tables of "What each layer knows" from stored results.

Run as, from the root of the repository:
    python recipes/layer-chart.py
Reads results/probes/{pos,wsd,english-original}.json and results/analysis/{wic,morphology,minilm}
.json (made by recipes/probes.py, analysis-figures.py and minilm.py), writes
docs/img/layers-know.svg and the tables of docs/explanation/what-each-layer-knows.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marks import replace_between
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from published_probes import POS_LAYERS, WSD_LAYERS

from elmokit.plot.figure import COLORS, GRAY, ElmoFigure, save_figure

LAYERS = ("layer 0", "layer 1", "layer 2")
KINDS = ("inflected", "derived", "compound", "misspelled", "made-up", "look-alike")
# Color and marker of each model.
STYLES = {
    name: {"color": color, "marker": marker, "linestyle": ""}
    for name, color, marker in (
        ("english", COLORS[0], "o"),
        ("english-original", COLORS[1], "s"),
        ("Peters et al. 2018", COLORS[2], "D"),
        ("GloVe, 50 dimensions", GRAY, "^"),
    )
}


@dataclass(frozen=True)
class Point:
    """A value in percent, and its 95% interval if known."""

    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Panel:
    """One probe.

    Attributes:
        title: The probe.
        unit: The metric.
        ticks: Positions of the grid lines; the first and last are the limits of the axis.
        series: The measured layers of each model.
        baseline: Name and value of the baseline without context.
    """

    title: str
    unit: str
    ticks: tuple[int, ...]
    series: dict[str, dict[str, Point]]
    baseline: tuple[str, float]


def main() -> None:
    """Read the results, draw the chart and update the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=Path("docs/img/layers-know.svg"))
    parser.add_argument(
        "--page", type=Path, default=Path("docs/explanation/what-each-layer-knows.md")
    )
    args = parser.parse_args()
    panels, related = read_panels(args.results), read_related(args.results)
    save_figure(draw(panels, related), args.out)
    text = replace_between(args.page.read_text("utf-8"), "layers", layer_table(panels))
    args.page.write_text(replace_between(text, "morphology", related_table(related)), "utf-8")


# ------------------------------------------------------------------------------------------ reading


def read_panels(results: Path) -> list[Panel]:
    """Read the scores of the three probes that compare layers."""
    original = _json(results / "probes/english-original.json")
    pos = _by_name(_json(results / "probes/pos.json")["runs"])["XPOS, precision exact"]
    wsd = _by_name(_json(results / "probes/wsd.json")["runs"])["Precision fast"]
    wic = _json(results / "analysis/wic.json")
    ours = {"english": (pos, wsd, wic)}
    ours["english-original"] = (original["pos"], original["wsd"], original["wic"])

    def series(part: int, to_point: Callable[[Any], Point]) -> dict[str, dict[str, Point]]:
        return {
            model: {
                layer: to_point(result)
                for layer, result in _by_name(parts[part]["results"]).items()
                if layer in LAYERS
            }
            for model, parts in ours.items()
        }

    def accuracy(result: dict[str, Any]) -> Point:
        return _point(result["accuracy"], result["interval"])

    paper = {
        probe: {layer: Point(scores.bilm) for layer, scores in published.items()}
        for probe, published in (("pos", POS_LAYERS), ("wsd", WSD_LAYERS))
    }
    most_frequent_tag = _by_name(pos["results"])["most frequent tag"]["accuracy"]
    first_sense = _by_name(wsd["results"])["first sense of WordNet"]["f1"]["ALL"]
    same_form = _by_name(wic["results"])["same form"]["overall"]["accuracy"]
    return [
        Panel(
            "Parts of speech",
            "accuracy of a linear probe, %",
            (80, 85, 90, 95, 100),
            series(0, accuracy) | {"Peters et al. 2018": paper["pos"]},
            ("most frequent tag", 100 * most_frequent_tag),
        ),
        Panel(
            "Word senses",
            "F1 of the nearest sense, %",
            (45, 50, 55, 60, 65, 70),
            series(1, lambda result: _point(result["f1"]["ALL"], result["interval"]))
            | {"Peters et al. 2018": paper["wsd"]},
            ("first sense", 100 * first_sense),
        ),
        Panel(
            "Same sense (WiC)",
            "accuracy of a cosine threshold, %",
            (50, 55, 60, 65, 70),
            series(2, lambda result: accuracy(result["overall"])),
            ("same form", 100 * same_form),
        ),
    ]


def read_related(results: Path) -> dict[str, dict[str, float]]:
    """Read the percentage of related words of each kind among the 10 nearest."""
    english = _json(results / "analysis/morphology.json")
    by_model = {
        "english": english["layer_0"],
        "english-original": _json(results / "analysis/minilm.json")["morphology"]["figures"][
            "english-original, layer 0"
        ],
        "GloVe, 50 dimensions": english["static_figures"],
    }
    return {
        model: {kind: 100 * scores[kind]["in_ten"] for kind in KINDS if kind in scores}
        for model, scores in by_model.items()
    }


def _json(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))


def _by_name(items: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {item["name"]: item for item in items}


def _point(value: float, interval: Sequence[float]) -> Point:
    return Point(100 * value, (100 * interval[0], 100 * interval[1]))


# ------------------------------------------------------------------------------------------- tables


def layer_table(panels: Sequence[Panel]) -> list[str]:
    """Return the scores of the layers as a Markdown table."""
    lines = [
        f"| Probe | Model | {' | '.join(map(str.capitalize, LAYERS))} |",
        "|---|---|" + "---|" * len(LAYERS),
    ]
    for panel in panels:
        name, value = panel.baseline
        lines.append(f"| {panel.title} | *{name}: {value:.1f}* |" + " |" * len(LAYERS))
        for model, points in panel.series.items():
            cells = (f"{points[x].value:.1f}" if x in points else "" for x in LAYERS)
            lines.append(f"| | {model} | {' | '.join(cells)} |")
    return lines


def related_table(related: dict[str, dict[str, float]]) -> list[str]:
    """Return the scores of related words as a Markdown table."""
    lines = [
        f"| Percentage among the 10 nearest | {' | '.join(related)} |",
        "|---|" + "---|" * len(related),
    ]
    for kind in KINDS:
        cells = (f"{shares[kind]:.0f}" if kind in shares else "" for shares in related.values())
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return lines


# ------------------------------------------------------------------------------------------ drawing


def draw(panels: Sequence[Panel], related: dict[str, dict[str, float]]) -> ElmoFigure:
    """Draw four panels in two rows, with one legend."""
    figure = ElmoFigure(
        *(7.2, 7.4, "What each layer knows"),
        "Layer 0 depends on the word only, layers 1 and 2 on its sentence. Layer 1 is best for "
        "parts of speech, layer 2 for senses. Vertical bars are 95% intervals. The paper tags the "
        "Penn Treebank, we tag UD EWT: compare the ranking of the layers, not the values. Last "
        "panel: share of related words among the 10 nearest of 20,000 words in layer 0.",
        layout="constrained",
    )
    *panel_axes, last = figure.subplots(2, 2).flatten()
    for axes, panel in zip(panel_axes, panels, strict=True):
        _draw_panel(axes, panel)
    _draw_related(last, related)
    for axes in (*panel_axes, last):
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    handles = [Line2D([], [], label=name, **style) for name, style in STYLES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _title(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(f"{title}\n{unit}", loc="left", fontsize=10)


def _draw_panel(axes: Axes, panel: Panel) -> None:
    _title(axes, panel.title, panel.unit)
    axes.set(ylim=(panel.ticks[0], panel.ticks[-1]), yticks=panel.ticks, xlim=(-0.5, 2.5))
    axes.set_xticks(range(len(LAYERS)), LAYERS)
    axes.grid(axis="y", color="#dfe3e8")
    name, value = panel.baseline
    axes.axhline(value, color=GRAY, linewidth=1)
    axes.text(2.5, value - 0.4, name, ha="right", va="top", color=GRAY, fontsize=8)
    for i, (model, points) in enumerate(panel.series.items()):
        # Shifted slightly, so that intervals do not overlap.
        positions = {x: j + (i - 0.5) * 0.1 for j, x in enumerate(LAYERS) if x in points}
        values = [points[layer].value for layer in positions]
        axes.plot([*positions.values()], values, **{**STYLES[model], "linestyle": "-"})
        for layer, x in positions.items():
            if (interval := points[layer].interval) is not None:
                axes.plot([x, x], interval, color=STYLES[model]["color"], linewidth=2.5)


def _draw_related(axes: Axes, related: dict[str, dict[str, float]]) -> None:
    _title(axes, "Related words, layer 0", "% among the 10 nearest")
    axes.set(xlim=(-4, 104), xticks=(0, 50, 100), ylim=(len(KINDS) - 0.5, -0.5))
    axes.set_yticks(range(len(KINDS)), KINDS)
    axes.grid(axis="x", color="#dfe3e8")
    for model, shares in related.items():
        rows = [row for row, kind in enumerate(KINDS) if kind in shares]
        axes.plot([shares[KINDS[row]] for row in rows], rows, **STYLES[model])


if __name__ == "__main__":
    main()
