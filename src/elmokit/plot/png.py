"""A drawing as PNG: the same shapes, drawn by matplotlib (extra `plot`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elmokit.errors import DependencyError
from elmokit.plot.drawing import Drawing, Line, Mark, Rect, Shape, Text
from elmokit.plot.svg import LIGHT, corners

_DOTS = 144  # per inch: two dots for each pixel of the drawing
_PIXELS = 72
_ALIGN = {"start": "left", "middle": "center", "end": "right"}


def write_png(drawing: Drawing, path: Path) -> None:
    """Write a drawing on white paper, two dots for each of its pixels."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise DependencyError("matplotlib", "plot", "A PNG") from error
    size = (drawing.width / _PIXELS, drawing.height / _PIXELS)
    figure = Figure(figsize=size, facecolor=LIGHT["paper"])
    FigureCanvasAgg(figure)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(0, drawing.width)
    axes.set_ylim(drawing.height, 0)
    axes.set_axis_off()
    for order, shape in enumerate(drawing.shapes):
        _draw(axes, shape, order)
    figure.savefig(path, format="png", dpi=_DOTS, facecolor=LIGHT["paper"])


def _draw(axes: Any, shape: Shape, order: int) -> None:
    from matplotlib import patches

    colour = LIGHT[shape.colour]
    if isinstance(shape, Rect):
        corner = (shape.x, shape.y)
        axes.add_patch(
            patches.Rectangle(
                corner,
                shape.width,
                shape.height,
                facecolor=colour,
                alpha=shape.opacity,
                linewidth=0,
                zorder=order,
            )
        )
    elif isinstance(shape, Line):
        ends = ([shape.x1, shape.x2], [shape.y1, shape.y2])
        axes.plot(*ends, color=colour, linewidth=shape.width, zorder=order)
    elif isinstance(shape, Mark):
        look: dict[str, Any] = {
            "facecolor": colour,
            "edgecolor": LIGHT["paper"],
            "alpha": 0.9,
            "zorder": order,
        }
        if shape.shape == "circle":
            axes.add_patch(patches.Circle((shape.x, shape.y), shape.radius, **look))
        else:
            axes.add_patch(patches.Polygon(corners(shape), **look))
    elif isinstance(shape, Text):
        axes.text(
            shape.x,
            shape.y,
            # What a user wrote is no formula, whatever dollar signs it has.
            shape.text.replace("$", r"\$"),
            fontsize=shape.size,
            color=colour,
            ha=_ALIGN[shape.anchor],
            va="baseline",
            rotation=shape.turned,
            rotation_mode="anchor",
            fontweight="bold" if shape.bold else "normal",
            zorder=order,
        )
