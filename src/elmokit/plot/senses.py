"""The uses of a word in many sentences on a plane, layer by layer.

Layer 0 does not depend on the sentence, so all uses are one point, as with static vectors. In
higher layers, the uses of the same sense are close to each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from elmokit.embed.cosine import unit
from elmokit.embed.layer_choice import LayerChoice, Layers
from elmokit.embed.model import ElmoModel
from elmokit.embed.vectors import FloatArray
from elmokit.errors import DataError
from elmokit.plot.figure import COLORS, GRAY, MARKERS, Picture, readable
from elmokit.plot.plane import cluster, principal_plane, silhouette, turned_to
from elmokit.progress import plural
from elmokit.search.index import TokenIndex
from elmokit.text.lines import read_lines
from elmokit.text.marked import Marked

_PANEL = 3.3  # inches
_PER_ROW = 3
_NUMBERED = 24  # maximum number of uses that are numbered and listed
_CONTEXT = 8  # tokens on each side of the word in the list
_LINE = 0.2  # inches per sentence in the list
_SAME_DIGITS = 4  # unit vectors that agree in so many digits are the same


class Use(NamedTuple):
    """A use of the word, and its sense, if known."""

    at: Marked
    sense: str = ""


@dataclass(frozen=True, eq=False)
class Plane:
    """The uses in one layer.

    Attributes:
        layer: The name of the layer.
        points: Coordinates on the principal plane, (n, 2).
        shares: Shares of the variance along both axes.
        different: Number of distinct vectors.
        agree: Number of uses whose nearest use is in the same group; None: not meaningful.
        separation: The silhouette of the groups; None: there is only one group.
    """

    layer: str
    points: FloatArray
    shares: tuple[float, float]
    different: int
    agree: int | None
    separation: float | None


@dataclass(frozen=True, eq=False)
class Senses:
    """The uses of a word in several layers.

    Attributes:
        word: The word.
        uses: Its uses.
        groups: The group of each use: a sense or a cluster.
        given: Whether the groups are annotated senses.
        planes: One for each layer.
    """

    word: str
    uses: list[Use]
    groups: list[str]
    given: bool
    planes: list[Plane]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "word": self.word,
            "colored_by": "sense" if self.given else "cluster",
            "uses": [
                {"tokens": list(use.at.tokens), "position": use.at.position, "group": group}
                for use, group in zip(self.uses, self.groups, strict=True)
            ],
            "planes": [
                {
                    "layer": plane.layer,
                    "points": np.round(plane.points.astype(float), 4).tolist(),
                    "shares": [round(share, 4) for share in plane.shares],
                    "different_vectors": plane.different,
                    "nearest_agree": plane.agree,
                    "silhouette": plane.separation and round(plane.separation, 4),
                }
                for plane in self.planes
            ],
        }


def read_uses(path: str | Path, *, tokenized: bool = False) -> list[Use]:
    """Read lines of a sentence with the word in brackets, optionally with a tab and its sense."""
    uses = []
    for line in read_lines([path]):
        if not line.text.strip():
            continue
        sentence, _, sense = line.text.partition("\t")
        try:
            at = Marked.read(sentence, tokenized=tokenized)
        except DataError as error:
            raise DataError(f"{path}, line {line.number}: {error}") from error
        uses.append(Use(at, sense.strip()))
    return uses


def senses_of(
    model: ElmoModel,
    uses: Sequence[Use],
    *,
    layer: Layers = "all",
    mix: Sequence[float] | None = None,
    state: Literal["reset", "warm"] = "reset",
    clusters: int | None = None,
) -> Senses:
    """Compute the planes of some uses.

    Args:
        model: The model.
        uses: The uses; either all or none have a sense.
        layer: The layers, one plane for each, as for `LayerChoice.parse_all`.
        mix: With layer "mix", its weights.
        state: Initial state of each sentence.
        clusters: Without senses, the number of clusters in the last layer. Default: automatic.
    """
    _check(uses)
    choices = LayerChoice.parse_all(layer, model.config.n_layers, mix)
    layers = model.compute([use.at.tokens for use in uses], state)
    own = np.stack([h[:, u.at.position] for u, h in zip(uses, layers, strict=True)], axis=1)
    return _senses(uses, [(c.label, unit(c.apply(own))) for c in choices], clusters)


def senses_in(
    index: TokenIndex,
    word: str,
    *,
    layer: Layers | None = None,
    mix: Sequence[float] | None = None,
    limit: int = 200,
    clusters: int | None = None,
) -> Senses:
    """Compute the planes of up to `limit` uses of a word in an index, spread evenly over it.

    By default, the layers are those of the index.
    """
    places = np.array(index.find(word), dtype=np.int64)
    if not len(places):
        raise DataError(f"The word '{word}' is not in the index {index.folder}.")
    spread = np.linspace(0, len(places) - 1, min(limit, len(places))).astype(int)
    chosen = places[np.unique(spread)].tolist()
    uses = [Use(index.token(number).at) for number in chosen]
    _check(uses)
    choices = index.meta.choices if layer is None else index.parse(layer, mix)
    vectors = [(c.label, index.vectors(c, chosen)) for c in choices]
    return _senses(uses, vectors, clusters)


def _check(uses: Sequence[Use]) -> None:
    if len(uses) < 3:
        raise DataError(
            f"Found {plural(len(uses), 'use')} of the word; expected at least 3. Add more "
            "sentences."
        )
    with_sense = sum(bool(use.sense) for use in uses)
    if with_sense not in (0, len(uses)):
        raise DataError(
            f"{with_sense} of the {len(uses)} uses have a sense. Specify one for all of them "
            "(after a tab) or for none."
        )


def _senses(
    uses: Sequence[Use], vectors: Sequence[tuple[str, FloatArray]], clusters: int | None
) -> Senses:
    given = bool(uses[0].sense)
    if given:
        groups = [use.sense for use in uses]
    else:
        labels = cluster(vectors[-1][1], clusters)
        groups = [f"cluster {label + 1}" for label in labels.tolist()]
    names = sorted(set(groups))
    numbers = np.array([names.index(group) for group in groups])
    planes: list[Plane] = []
    reference: FloatArray | None = None
    for name, points in reversed(vectors):
        coordinates, shares = principal_plane(points)
        if reference is None:
            reference = coordinates
        elif shares[0]:
            coordinates = turned_to(coordinates, reference)
        different = len(np.unique(points.round(_SAME_DIGITS), axis=0))
        # If many uses have the same vector, the nearest one is arbitrary.
        comparable = 2 * different > len(points) and len(names) > 1
        agree = _agree(points, numbers) if comparable else None
        apart = silhouette(points, numbers) if different > 1 else None
        planes.append(Plane(name, coordinates, shares, different, agree, apart))
    counted = [use.at.word.casefold() for use in uses]
    word = max(sorted(set(counted)), key=counted.count)
    return Senses(word, list(uses), groups, given, planes[::-1])


def _agree(points: FloatArray, groups: Any) -> int:
    cosines = points @ points.T
    np.fill_diagonal(cosines, -np.inf)
    return int((groups[cosines.argmax(axis=1)] == groups).sum())


# -------------------------------------------------------------------------------------- the figure


def draw_senses(senses: Senses) -> Picture:
    """Draw a plane for each layer, and below them the sentences, if there are not too many."""
    columns = min(len(senses.planes), _PER_ROW)
    rows = -(-len(senses.planes) // columns)
    names = sorted(set(senses.groups))
    numbered = len(senses.uses) <= _NUMBERED
    drawn = rows * _PANEL + 0.9
    listed = -(-len(senses.uses) // 2) * _LINE if numbered else 0.0
    picture = Picture(
        max(columns, 2) * _PANEL,
        drawn + listed,
        f"“{senses.word}” in {len(senses.uses)} sentences",
        "Each marker is a use of the word; each panel shows the first two principal components of "
        "the normalized vectors of a layer. Layer 0 only depends on the word, so all uses share "
        "one vector, as with static vectors. Higher layers depend on the sentence.",
        layout="constrained",
    )
    halves: Any = picture.subfigures(2, 1, height_ratios=[drawn, max(listed, 0.01)])
    upper, lower = halves
    panels = upper.subplots(rows, columns, squeeze=False).flatten()
    for axes in panels[len(senses.planes) :]:
        axes.set_visible(False)
    for axes, plane in zip(panels, senses.planes, strict=False):
        _panel(axes, senses, plane, names, numbered=numbered)
    by = "sense" if senses.given else f"cluster of {senses.planes[-1].layer}"
    upper.legend(
        handles=[
            Line2D([], [], label=f"{readable(n, 24)} ({senses.groups.count(n)})", **_style(i))
            for i, n in enumerate(names)
        ],
        title=f"colored by {by}",
        loc="outside upper left",
        ncols=4,
        frameon=False,
        alignment="left",
        fontsize=9,
        title_fontsize=9,
    )
    if numbered:
        _list(lower.subplots(), senses, names, int(max(columns, 2) * _PANEL * 7) - 8)
    return picture


def _style(group: int) -> dict[str, Any]:
    color, marker = COLORS[group % len(COLORS)], MARKERS[group % len(MARKERS)]
    return {"color": color, "marker": marker, "linestyle": "", "markersize": 6}


def _panel(
    axes: Axes, senses: Senses, plane: Plane, names: Sequence[str], *, numbered: bool
) -> None:
    n = len(senses.uses)
    axes.set_title(plane.layer, loc="left", fontsize=10, fontweight="bold")
    axes.set(xticks=[], yticks=[], facecolor="#f5f6f8", box_aspect=1)
    axes.spines[["top", "right"]].set_visible(False)
    if plane.different == 1:
        axes.plot(0, 0, "o", color=GRAY, markersize=9)
        axes.annotate(
            f"one vector for all {n} uses",
            (0, 0),
            (0, -24),
            textcoords="offset points",
            ha="center",
        )
        axes.set_xlabel("independent of the sentence", loc="left", color=GRAY, fontsize=8)
        return
    note = f"{plane.different} distinct vectors for {n} uses"
    if plane.agree is not None:
        what = "sense" if senses.given else "cluster"
        note = f"nearest use of the same {what}: {plane.agree} of {n}"
    axes.set_xlabel(f"PC 1 ({plane.shares[0]:.0%})\n{note}", loc="left", color=GRAY, fontsize=8)
    axes.set_ylabel(f"PC 2 ({plane.shares[1]:.0%})", loc="top", color=GRAY, fontsize=8)
    groups = np.array(senses.groups)
    for i, name in enumerate(names):
        axes.plot(*plane.points[groups == name].T, alpha=0.85, markeredgecolor="white", **_style(i))
    # The same scale for both axes, with space for labels around the outermost markers.
    middle = (plane.points.min(axis=0) + plane.points.max(axis=0)) / 2
    half = 0.62 * max(float(np.ptp(plane.points, axis=0).max()), 1e-6)
    axes.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    if numbered:
        for number, shift in enumerate(_label_offsets(plane.points)):
            axes.annotate(
                str(number + 1),
                tuple(plane.points[number]),
                shift,
                textcoords="offset points",
                ha="center",
                va="center",
                fontsize=7,
                arrowprops={"arrowstyle": "-", "color": GRAY, "linewidth": 0.5, "shrinkB": 3},
            )


def _label_offsets(points: FloatArray) -> list[tuple[float, float]]:
    """Return an offset for the label of each marker, in points, at which it overlaps nothing."""
    # 1.24: the width of the axes, see `_panel`.
    size = 0.8 * _PANEL * 72 / (1.24 * max(float(np.ptp(points, axis=0).max()), 1e-6))
    marks = points.astype(np.float64) * size
    occupied = [(x, y, 5.0, 5.0) for x, y in marks]
    options = [
        (radius * math.cos(angle), radius * math.sin(angle))
        for radius in (9, 14, 20, 28)
        for angle in np.linspace(0.25, 1.75, 8) * math.pi
    ]
    offsets = []
    for x, y in marks:

        def overlaps(shift: tuple[float, float], x: float = x, y: float = y) -> int:
            left, top = x + shift[0], y + shift[1]
            return sum(abs(left - a) < w + 5 and abs(top - b) < h + 4 for a, b, w, h in occupied)

        best = min(options, key=overlaps)  # the first one that is free
        occupied.append((x + best[0], y + best[1], 5.0, 4.0))
        offsets.append(best)
    return offsets


def _list(axes: Axes, senses: Senses, names: Sequence[str], letters: int) -> None:
    """Write the numbered sentences in two columns."""
    per_column = -(-len(senses.uses) // 2)
    axes.set(xlim=(0, 2), ylim=(per_column, 0))
    axes.set_axis_off()
    for number, (use, group) in enumerate(zip(senses.uses, senses.groups, strict=True)):
        column, row = divmod(number, per_column)
        x, y = column + 0.02, row + 0.5
        axes.plot(x, y, **_style(names.index(group)))
        text = f"{number + 1:>2}  {readable(use.at.show(_CONTEXT), letters)}"
        axes.text(x + 0.02, y, text, va="center", fontsize=8)
