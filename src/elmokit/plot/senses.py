"""One word in many sentences: its uses on a plane, layer by layer.

Layer 0 knows the word alone, so all its uses are one point, as in a table of static vectors. Higher
up the sentence moves them, and the uses of one sense come together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from elmokit.embed.model import ElmoModel
from elmokit.embed.spaces import Space, every_layer, unit
from elmokit.embed.vectors import FloatArray
from elmokit.errors import DataError
from elmokit.plot.drawing import COLOURS, SHAPES, Drawing, Line, Mark, Rect, Text, shorten
from elmokit.plot.plane import cluster, principal_plane, silhouette, turned_to
from elmokit.search.index import TokenIndex
from elmokit.search.index_search import vectors_of
from elmokit.text.lines import read_lines
from elmokit.text.marked import Marked

_PANEL, _GAP, _LEFT, _TOP = 270.0, 24.0, 24.0, 112.0
_BELOW = 52.0  # between a panel and what comes below it
_PER_ROW = 3
_NUMBERED = 24  # uses that are numbered and listed below; more would cover each other
_LINE = 19.0
_LETTERS = 66  # of a sentence in the list
_SAME = 1e-4  # vectors of length 1 that are nearer than this are one


class Use(NamedTuple):
    """A use of the word, and its sense if somebody says so."""

    at: Marked
    sense: str = ""


@dataclass(frozen=True, eq=False)
class Plane:
    """The uses in one space.

    Attributes:
        space: Its name.
        points: Coordinates on the principal plane, (n, 2).
        shares: Shares of the variance that both axes show.
        different: How many different vectors there are.
        agree: How many uses have a nearest use of the same group; None where that says nothing.
        separation: The silhouette of the groups, None without two.
    """

    space: str
    points: FloatArray
    shares: tuple[float, float]
    different: int
    agree: int | None
    separation: float | None


@dataclass(frozen=True, eq=False)
class Senses:
    """The uses of a word in several spaces.

    Attributes:
        word: The word.
        uses: Its uses.
        groups: The group of each: a sense, or a cluster.
        given: Whether the groups are senses that were given.
        planes: One for each space.
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
            "coloured_by": "sense" if self.given else "cluster",
            "uses": [
                {"tokens": list(use.at.tokens), "position": use.at.position, "group": group}
                for use, group in zip(self.uses, self.groups, strict=True)
            ],
            "planes": [
                {
                    "space": plane.space,
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
    """Read lines of a sentence with the word in brackets, and maybe a tab and its sense."""
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
    spaces: Sequence[Space] | None = None,
    *,
    state: Literal["reset", "warm"] = "reset",
    clusters: int | None = None,
) -> Senses:
    """Compute the planes of some uses.

    Args:
        model: The model.
        uses: The uses; either all have a sense or none has.
        spaces: The spaces, one plane for each; None is every layer.
        state: What each sentence starts from.
        clusters: Without senses, how many clusters to find in the last space; None chooses.
    """
    _check(uses)
    spaces = every_layer(model.config.n_layers) if spaces is None else spaces
    layers, _ = model.compute([use.at.tokens for use in uses], state)
    own = np.stack([h[:, u.at.position] for u, h in zip(uses, layers, strict=True)], axis=1)
    return _senses(uses, [(s.name, unit(s.of(own))) for s in spaces], clusters)


def senses_in(
    index: TokenIndex,
    word: str,
    spaces: Sequence[Space],
    *,
    limit: int = 200,
    clusters: int | None = None,
) -> Senses:
    """Compute the planes of the uses of a word in an index: as many as `limit`, spread over it."""
    found = np.array(index.find(word), dtype=np.int64)
    if not len(found):
        raise DataError(f"The word '{word}' is not in the index {index.folder}.")
    chosen = found[np.unique(np.linspace(0, len(found) - 1, min(limit, len(found))).astype(int))]
    uses = [Use(index.token(number).at) for number in chosen.tolist()]
    _check(uses)
    return _senses(uses, [(s.name, vectors_of(index, s, chosen)) for s in spaces], clusters)


def _check(uses: Sequence[Use]) -> None:
    if len(uses) < 3:
        raise DataError(
            f"A plane needs at least 3 uses of the word, found {len(uses)}. Give more sentences."
        )
    with_sense = sum(bool(use.sense) for use in uses)
    if with_sense not in (0, len(uses)):
        raise DataError(
            f"{with_sense} of the {len(uses)} uses have a sense. Give one to all of them (after a "
            "tab), or to none."
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
        different = _different(points)
        # Where many uses are one vector, which of them is the nearest says nothing.
        told = 2 * different > len(points) and len(names) > 1
        agree = _agree(points, numbers) if told else None
        apart = silhouette(points, numbers) if different > 1 else None
        planes.append(Plane(name, coordinates, shares, different, agree, apart))
    counted = [use.at.word.casefold() for use in uses]
    word = max(sorted(set(counted)), key=counted.count)
    return Senses(word, list(uses), groups, given, planes[::-1])


def _different(points: FloatArray) -> int:
    left = list(range(len(points)))
    count = 0
    while left:
        first = points[left[0]]
        left = [i for i in left if float(np.linalg.norm(points[i] - first)) > _SAME]
        count += 1
    return count


def _agree(points: FloatArray, groups: Any) -> int:
    cosines = points @ points.T
    np.fill_diagonal(cosines, -np.inf)
    return int((groups[cosines.argmax(axis=1)] == groups).sum())


# ------------------------------------------------------------------------------------- the picture


def draw_senses(senses: Senses) -> Drawing:
    """Draw a plane for each space, and below it the sentences if they are not too many."""
    n = len(senses.planes)
    columns = min(n, _PER_ROW)
    rows = -(-n // columns)
    listed = len(senses.uses) <= _NUMBERED
    below = _TOP + rows * (_PANEL + _BELOW)
    width = max(2 * _LEFT + columns * _PANEL + (columns - 1) * _GAP, 560.0)
    per_column = -(-len(senses.uses) // 2)
    drawing = Drawing(
        width,
        below + (26 + per_column * _LINE if listed else 0) + 10,
        f"“{senses.word}” in {len(senses.uses)} sentences",
        "Each mark is a use of the word; each panel is the plane on which the vectors of a layer "
        "spread most (PCA of vectors of length 1). Layer 0 knows the word alone and has one vector "
        "for all uses, as a table of static vectors has. Higher layers know the sentence. Hover "
        "over a mark to read its sentence.",
    )
    by = "sense" if senses.given else f"cluster of {senses.planes[-1].space}"
    drawing.head(f"coloured by {by}", _LEFT)
    looks = _legend(drawing, senses)
    for i, plane in enumerate(senses.planes):
        x = _LEFT + (i % columns) * (_PANEL + _GAP)
        y = _TOP + (i // columns) * (_PANEL + _BELOW)
        _panel(drawing, senses, plane, looks, x, y, numbered=listed)
    if listed:
        _list(drawing, senses, looks, below, (width - 2 * _LEFT) / 2)
    return drawing


def _legend(drawing: Drawing, senses: Senses) -> dict[str, tuple[str, str]]:
    """Write what the marks mean; return colour and shape of each group."""
    names = sorted(set(senses.groups))
    looks = {
        name: (COLOURS[i % len(COLOURS)], SHAPES[i % len(SHAPES)]) for i, name in enumerate(names)
    }
    x = _LEFT
    for name in names:
        colour, shape = looks[name]
        label = f"{shorten(name, 24)} ({senses.groups.count(name)})"
        drawing.add(Mark(x + 6, 66, 5, colour, shape), Text(x + 16, 70, label))
        x += 34 + 6.6 * len(label)
    return looks


def _panel(
    drawing: Drawing,
    senses: Senses,
    plane: Plane,
    looks: dict[str, tuple[str, str]],
    x: float,
    y: float,
    *,
    numbered: bool,
) -> None:
    drawing.add(
        Text(x, y - 8, plane.space, 13, bold=True),
        Rect(x, y, _PANEL, _PANEL, "grid", 0.25),
        Line(x, y + _PANEL, x + _PANEL, y + _PANEL),
        Line(x, y, x, y + _PANEL),
    )
    n = len(senses.uses)
    if plane.different == 1:
        cx, cy = x + _PANEL / 2, y + _PANEL / 2
        sentences = "\n".join(use.at.show() for use in senses.uses[:_NUMBERED])
        drawing.add(
            Mark(cx, cy, 9, "grey", title=sentences),
            Text(cx, cy + 30, f"one vector for all {n} uses", anchor="middle"),
            Text(x, y + _PANEL + 18, "the sentence does not matter", 11, colour="faint"),
        )
        return
    first, second = (f"{share:.0%}" for share in plane.shares)
    told = f"{plane.different} different vectors for {n} uses"
    if plane.agree is not None:
        what = "sense" if senses.given else "cluster"
        told = f"nearest use of the same {what}: {plane.agree} of {n}"
    drawing.add(
        Text(x + _PANEL - 6, y + _PANEL - 7, f"axis 1, {first}", 10, anchor="end", colour="faint"),
        Text(x + 13, y + 6, f"axis 2, {second}", 10, "end", "faint", turned=90),
        Text(x, y + _PANEL + 18, told, 11, colour="faint"),
    )
    for number, (px, py) in enumerate(_placed(plane.points, x, y)):
        use, group = senses.uses[number], senses.groups[number]
        colour, shape = looks[group]
        drawing.add(Mark(px, py, 5.5, colour, shape, f"{group}: {use.at.show(12)}"))
        if numbered:
            drawing.add(Text(px + 7, py - 4, str(number + 1), 10, colour="faint"))


def _placed(points: FloatArray, x: float, y: float) -> list[tuple[float, float]]:
    """Fit points into a panel, both axes with the same scale."""
    low, high = points.min(axis=0), points.max(axis=0)
    scale = (_PANEL - 50) / max(float((high - low).max()), 1e-6)
    middle = (low + high) / 2
    return [
        (
            x + _PANEL / 2 + float(p[0] - middle[0]) * scale,
            y + _PANEL / 2 - float(p[1] - middle[1]) * scale,
        )
        for p in points
    ]


def _list(
    drawing: Drawing,
    senses: Senses,
    looks: dict[str, tuple[str, str]],
    y: float,
    width: float,
) -> None:
    per_column = -(-len(senses.uses) // 2)
    letters = min(_LETTERS, int((width - 36) / 5.7))
    for number, (use, group) in enumerate(zip(senses.uses, senses.groups, strict=True)):
        column, row = divmod(number, per_column)
        x, line = _LEFT + column * width, y + 14 + row * _LINE
        colour, shape = looks[group]
        drawing.add(
            Mark(x + 5, line - 4, 4.5, colour, shape),
            Text(x + 14, line, f"{number + 1}", 11, colour="faint"),
            Text(x + 32, line, _fitting(use.at, letters), 11),
        )


def _fitting(at: Marked, letters: int) -> str:
    """Return as much of the sentence around the word as fits."""
    for around in range(len(at.tokens), 0, -1):
        if len(shown := at.show(around)) <= letters:
            return shown
    return shorten(at.show(1), letters)
