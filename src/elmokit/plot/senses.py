"""Scatter plots of the uses of a word in many sentences, one panel per layer.

Layer 0 depends only on the word, so all uses of the word coincide, as with static vectors. In
higher layers, uses with the same sense are close to each other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from elmokit.embed.layer_choice import LayerChoice, Layers
from elmokit.embed.model import ElmoModel
from elmokit.embed.vectors import FloatArray, normalize
from elmokit.errors import DataError
from elmokit.plot.figure import COLORS, GRAY, MARKERS, ElmoFigure, format_label
from elmokit.plot.plane import cluster, principal_planes, silhouette
from elmokit.progress import plural
from elmokit.search.index import TokenIndex
from elmokit.text.lines import read_lines
from elmokit.text.marked import MarkedWord

_PANEL_SIZE = 3.3  # in inches
_PANELS_PER_ROW = 3
_MAX_LISTED_USES = 24  # if there are more, they are not listed below the panels
_CONTEXT_TOKENS = 8  # on each side of the word, in the list
_LINE_HEIGHT = 0.2  # in inches, in the list
_CHARACTERS_PER_INCH = 7  # in the list
_DECIMALS = 4  # unit vectors are considered equal if they agree to this many decimal places


class Use(NamedTuple):
    """A use of a word in a sentence. An unknown sense is an empty string."""

    marked: MarkedWord
    sense: str = ""


@dataclass(frozen=True, eq=False)
class Plane:
    """The uses of a word in one layer, projected to two dimensions.

    Attributes:
        layer: Name of the layer.
        points: Coordinates on the principal plane, shape (n, 2).
        explained: Fraction of the variance along each axis.
        n_distinct: Number of distinct vectors.
        nearest_agree: Number of uses whose nearest other use is in the same group. None if many
            uses have the same vector, or if there is only one group.
        silhouette: Silhouette score of the groups. None if there is only one group.
    """

    layer: str
    points: FloatArray
    explained: tuple[float, float]
    n_distinct: int
    nearest_agree: int | None
    silhouette: float | None


@dataclass(frozen=True, eq=False)
class Senses:
    """The uses of a word in several layers.

    Attributes:
        word: The word.
        uses: The n uses of the word.
        groups: The sense or cluster of each use.
        colored_by: What `groups` contains, "sense" or "cluster".
        planes: The projection of each layer.
    """

    word: str
    uses: list[Use]
    groups: list[str]
    colored_by: Literal["sense", "cluster"]
    planes: list[Plane]

    def to_dict(self) -> dict[str, Any]:
        """Return the uses and their coordinates as JSON values."""
        return {
            "word": self.word,
            "colored_by": self.colored_by,
            "uses": [
                {**asdict(use.marked), "group": group}
                for use, group in zip(self.uses, self.groups, strict=True)
            ],
            "planes": [
                {**asdict(plane), "points": np.round(plane.points.astype(float), 4).tolist()}
                for plane in self.planes
            ],
        }


def read_uses(path: str | Path, *, tokenized: bool = False) -> list[Use]:
    """Read a file with one sentence per line, optionally followed by a tab and a sense.

    Args:
        path: The file. One word of each sentence is in brackets.
        tokenized: Whether the sentences are already tokenized, with spaces between tokens.
    """
    uses = []
    for line in read_lines([path]):
        if not line.text.strip():
            continue
        sentence, _, sense = line.text.partition("\t")
        try:
            marked = MarkedWord.parse(sentence, tokenized=tokenized)
        except DataError as error:
            raise line.error(str(error)) from error
        uses.append(Use(marked, sense.strip()))
    return uses


def project_senses(
    model: ElmoModel,
    uses: Sequence[Use],
    *,
    layer: Layers = "all",
    mix: Sequence[float] | None = None,
    state: Literal["reset", "warm"] = "reset",
    clusters: int | None = None,
) -> Senses:
    """Project the vectors of uses to two dimensions.

    Args:
        model: The model.
        uses: At least three uses. Either all or none of them have a sense.
        layer: The layers to plot, as in `LayerChoice.parse_all`.
        mix: The weights of the layers, for layer "mix".
        state: Initial state of each sentence.
        clusters: Number of clusters in the last layer, for uses without sense labels. Default: the
            number with the best silhouette score.
    """
    _check_uses(uses)
    choices = LayerChoice.parse_all(layer, model.config.n_layers, mix)
    layers = model.compute([use.marked.tokens for use in uses], state)
    words = np.stack(
        [h[:, use.marked.position] for use, h in zip(uses, layers, strict=True)], axis=1
    )
    vectors = {choice.label: normalize(choice.apply(words)) for choice in choices}
    return _project(uses, vectors, clusters)


def project_index_senses(
    index: TokenIndex,
    word: str,
    *,
    layer: Layers | None = None,
    mix: Sequence[float] | None = None,
    limit: int = 200,
    clusters: int | None = None,
) -> Senses:
    """Find the uses of a word in an index, and project their vectors to two dimensions.

    Args:
        index: The index.
        word: The word (case-insensitive).
        layer: The layers to plot, as in `LayerChoice.parse_all`. Default: the layers that the
            index stores.
        mix: The weights of the layers, for layer "mix".
        limit: Maximum number of uses. If there are more, they are sampled evenly.
        clusters: Number of clusters in the last layer. Default: the number with the best silhouette
            score.
    """
    token_ids = np.array(index.find(word), dtype=np.int64)
    if not len(token_ids):
        raise DataError(f"'{word}' is not a word of the index {index.folder}. Choose another word.")
    positions = np.linspace(0, len(token_ids) - 1, min(limit, len(token_ids))).astype(int)
    sampled = token_ids[positions].tolist()
    uses = [Use(index.token(token_id).marked) for token_id in sampled]
    _check_uses(uses)
    choices = index.meta.choices if layer is None else index.parse_layers(layer, mix)
    vectors = {choice.label: index.vectors(choice, sampled) for choice in choices}
    return _project(uses, vectors, clusters)


def _check_uses(uses: Sequence[Use]) -> None:
    if len(uses) < 3:
        raise DataError(
            f"Found {plural(len(uses), 'use')} of the word, expected at least 3. Add "
            "sentences, or choose a more frequent word."
        )
    n_missing = sum(not use.sense for use in uses)
    if n_missing not in (0, len(uses)):
        raise DataError(
            f"The sense is missing for {n_missing} of {len(uses)} uses. Specify a sense after a "
            "tab for all uses or for none."
        )


def _project(
    uses: Sequence[Use], vectors: Mapping[str, FloatArray], clusters: int | None
) -> Senses:
    """Project the normalized vectors of the uses in each layer, keyed by the name of the layer."""
    *_, last_layer = vectors.values()
    groups = [use.sense for use in uses]
    colored_by: Literal["sense", "cluster"] = "sense"
    if not groups[0]:
        groups = [f"cluster {label + 1}" for label in cluster(last_layer, clusters)]
        colored_by = "cluster"
    names = sorted(set(groups))
    labels = np.array([names.index(group) for group in groups])
    planes = []
    projections = principal_planes(list(vectors.values()), reference=-1)
    for (name, points), (coordinates, explained) in zip(vectors.items(), projections, strict=True):
        n_distinct = len(np.unique(points.round(_DECIMALS), axis=0))
        # If many uses have the same vector, the nearest use is arbitrary.
        is_comparable = 2 * n_distinct > len(points) and len(names) > 1
        nearest = (points @ points.T - 3 * np.eye(len(points))).argmax(axis=1)  # not the use itself
        nearest_agree = int((labels[nearest] == labels).sum()) if is_comparable else None
        score = silhouette(points, labels) if n_distinct > 1 else None
        planes.append(Plane(name, coordinates, explained, n_distinct, nearest_agree, score))
    words = [use.marked.word.casefold() for use in uses]
    word = max(sorted(set(words)), key=words.count)
    return Senses(word, list(uses), groups, colored_by, planes)


# ------------------------------------------------------------------------------------------ figure


def draw_senses(senses: Senses) -> ElmoFigure:
    """Draw one panel per layer. If there are at most 24 uses, also list their sentences."""
    columns = min(len(senses.planes), _PANELS_PER_ROW)
    rows = -(-len(senses.planes) // columns)
    names = sorted(set(senses.groups))
    is_numbered = len(senses.uses) <= _MAX_LISTED_USES
    width = max(columns, 2) * _PANEL_SIZE
    panels_height = rows * _PANEL_SIZE + 0.9
    list_height = -(-len(senses.uses) // 2) * _LINE_HEIGHT if is_numbered else 0.0
    figure = ElmoFigure(
        width,
        panels_height + list_height,
        f"{len(senses.uses)} uses of “{senses.word}”",
        "Each marker is a use of the word. Each panel shows the plane of the first two principal "
        "components of the normalized vectors of a layer, rotated to match the last panel. Layer 0 "
        "depends only on the word, so all uses have the same vector, as with static vectors. "
        "Higher layers depend on the sentence.",
        layout="constrained",
    )
    height_ratios = [panels_height, max(list_height, 0.01)]
    upper, lower = figure.subfigures(2, 1, squeeze=False, height_ratios=height_ratios)[:, 0]
    panels = upper.subplots(rows, columns, squeeze=False).flatten()
    for axes in panels[len(senses.planes) :]:
        axes.set_visible(False)
    for axes, plane in zip(panels, senses.planes, strict=False):
        _draw_panel(axes, senses, plane, names, is_numbered=is_numbered)
    source = "" if senses.colored_by == "sense" else f" of {senses.planes[-1].layer}"
    labels = [f"{format_label(name, 24)} ({senses.groups.count(name)})" for name in names]
    upper.legend(
        handles=[Line2D([], [], label=label, **_style(i)) for i, label in enumerate(labels)],
        title=f"colored by {senses.colored_by}{source}",
        loc="outside upper left",
        ncols=4,
        frameon=False,
        alignment="left",
        fontsize=9,
        title_fontsize=9,
    )
    if is_numbered:
        max_characters = int(width * _CHARACTERS_PER_INCH) - 8
        _draw_list(lower.subplots(), senses, names, max_characters)
    return figure


def _style(group: int) -> dict[str, Any]:
    """Return the arguments of `plot` for the markers of a group."""
    color, marker = COLORS[group % len(COLORS)], MARKERS[group % len(MARKERS)]
    return {"color": color, "marker": marker, "linestyle": "", "markersize": 6}


def _draw_panel(
    axes: Axes, senses: Senses, plane: Plane, names: Sequence[str], *, is_numbered: bool
) -> None:
    n = len(senses.uses)
    axes.set_title(plane.layer, loc="left", fontsize=10, fontweight="bold")
    axes.set(xticks=[], yticks=[], facecolor="#f5f6f8", box_aspect=1)
    axes.spines[["top", "right"]].set_visible(False)
    if plane.n_distinct == 1:
        axes.plot(0, 0, "o", color=GRAY, markersize=9)
        note = f"one vector for all {n} uses"
        axes.annotate(note, (0, 0), (0, -24), textcoords="offset points", ha="center")
        axes.set_xlabel("independent of the sentence", loc="left", color=GRAY, fontsize=8)
        return
    note = f"{plane.n_distinct} distinct vectors for {n} uses"
    if plane.nearest_agree is not None:
        note = f"nearest use of the same {senses.colored_by}: {plane.nearest_agree} of {n}"
    x, y = (f"{fraction:.0%} of the variance" for fraction in plane.explained)
    axes.set_xlabel(f"{x}\n{note}", loc="left", color=GRAY, fontsize=8)
    axes.set_ylabel(y, loc="top", color=GRAY, fontsize=8)
    groups = np.array(senses.groups)
    for i, name in enumerate(names):
        axes.plot(*plane.points[groups == name].T, alpha=0.85, markeredgecolor="white", **_style(i))
    # Use the same scale for both axes, with space for labels around the outermost markers.
    middle = (plane.points.min(axis=0) + plane.points.max(axis=0)) / 2
    half = 0.62 * max(float(np.ptp(plane.points, axis=0).max()), 1e-6)
    axes.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    if is_numbered:
        for number, offset in enumerate(_label_offsets(plane.points)):
            axes.annotate(
                str(number + 1),
                tuple(plane.points[number]),
                offset,
                textcoords="offset points",
                ha="center",
                va="center",
                fontsize=7,
                arrowprops={"arrowstyle": "-", "color": GRAY, "linewidth": 0.5, "shrinkB": 3},
            )


def _label_offsets(points: FloatArray) -> list[tuple[float, float]]:
    """Place the number of each use so that labels and markers overlap as little as possible.

    Args:
        points: Coordinates of the uses, shape (n, 2).

    Returns:
        The offset of each label from its marker, in typographic points.
    """
    # The axes are 1.24 times as wide as the range of the coordinates (see `_draw_panel`).
    scale = 0.8 * _PANEL_SIZE * 72 / (1.24 * max(float(np.ptp(points, axis=0).max()), 1e-6))
    markers = points.astype(np.float64) * scale
    angles = np.linspace(0.25, 1.75, 8) * math.pi
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    candidates = np.concatenate([radius * directions for radius in (9, 14, 20, 28)])
    occupied, sizes = list(markers), [(10.0, 9.0)] * len(markers)
    offsets = []
    for marker in markers:
        distances = np.abs(marker + candidates[:, None] - np.array(occupied))
        n_overlaps = (distances < np.array(sizes)).all(axis=2).sum(axis=1)
        best = candidates[n_overlaps.argmin()]
        occupied.append(marker + best)
        sizes.append((10.0, 8.0))
        offsets.append(tuple(best))
    return offsets


def _draw_list(axes: Axes, senses: Senses, names: Sequence[str], max_characters: int) -> None:
    """Write the numbered sentences in two columns."""
    per_column = -(-len(senses.uses) // 2)
    axes.set(xlim=(0, 2), ylim=(per_column, 0))
    axes.set_axis_off()
    for number, (use, group) in enumerate(zip(senses.uses, senses.groups, strict=True)):
        column, row = divmod(number, per_column)
        x, y = column + 0.02, row + 0.5
        axes.plot(x, y, **_style(names.index(group)))
        sentence = format_label(use.marked.format(_CONTEXT_TOKENS), max_characters)
        axes.text(x + 0.02, y, f"{number + 1:>2}  {sentence}", va="center", fontsize=8)
