"""Sentence against sentence: the cosine of every token with every token, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from elmokit.embed.model import ElmoModel
from elmokit.embed.spaces import Space, every_layer, unit
from elmokit.embed.tokenised import tokens_of
from elmokit.embed.vectors import FloatArray
from elmokit.errors import DataError
from elmokit.plot.drawing import Drawing, Rect, Text, shorten, text_width

_WIDTH = 1040.0
_LEFT, _TOP = 24.0, 84.0
_SMALLEST, _LARGEST = 12.0, 40.0
_MOST = 60  # tokens of a sentence; more cannot be read
_LETTERS = 16  # of a token


@dataclass(frozen=True, eq=False)
class Similarity:
    """The cosines of the tokens of two sentences.

    Attributes:
        rows: The tokens of one sentence.
        columns: Those of the other.
        cosines: For each space its name and the cosines, (R, C).
    """

    rows: list[str]
    columns: list[str]
    cosines: dict[str, FloatArray]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return {
            "rows": self.rows,
            "columns": self.columns,
            "cosines": {
                name: np.round(found.astype(float), 4).tolist()
                for name, found in self.cosines.items()
            },
        }


def similarity_of(
    model: ElmoModel,
    rows: str | Sequence[str],
    columns: str | Sequence[str] | None = None,
    spaces: Sequence[Space] | None = None,
    *,
    state: Literal["reset", "warm"] = "reset",
) -> Similarity:
    """Compare two sentences, or one with itself; in every layer unless told."""
    given = [rows] if columns is None else [rows, columns]
    tokens = [tokens_of(sentence, i)[0] for i, sentence in enumerate(given)]
    for words in tokens:
        if not 0 < len(words) <= _MOST:
            raise DataError(
                f"A sentence of the picture should have 1 to {_MOST} tokens, found {len(words)}."
            )
    spaces = every_layer(model.config.n_layers) if spaces is None else spaces
    layers, _ = model.compute(tokens, state)
    cosines: dict[str, FloatArray] = {}
    for space in spaces:
        a, b = unit(space.of(layers[0])), unit(space.of(layers[-1]))
        cosines[space.name] = a @ b.T
    return Similarity(tokens[0], tokens[-1], cosines)


def draw_similarity(found: Similarity) -> Drawing:
    """Draw a heat map for each space: the darker, the nearer."""
    labels = 12 + max(text_width(shorten(t, _LETTERS)) for t in found.rows)
    heads = 12 + 0.8 * max(text_width(shorten(t, _LETTERS)) for t in found.columns)
    n, columns = len(found.cosines), len(found.columns)
    per_row = n
    while per_row > 1 and (_WIDTH - 2 * _LEFT - labels) / per_row < columns * 18 + 20:
        per_row -= 1
    room = (_WIDTH - 2 * _LEFT - labels - 20 * per_row) / per_row
    cell = min(max(room / columns, _SMALLEST), _LARGEST)
    panel = columns * cell + 20 + 0.5 * heads  # the last heads lean out to the right
    height = heads + 26 + len(found.rows) * cell + 24
    drawing = Drawing(
        max(2 * _LEFT + labels + per_row * panel, 480),
        _TOP + -(-n // per_row) * height,
        "Every token against every token, by cosine",
        "The darker a cell, the nearer the vectors of its two tokens; orange cells are below zero. "
        "Layer 0 knows words alone, so only what is spelled alike is near; higher layers know the "
        "sentence. Hover over a cell to read its cosine.",
    )
    drawing.head("the darker, the nearer: 0 is empty, 1 is full; orange is below zero", _LEFT)
    for i, (name, cosines) in enumerate(found.cosines.items()):
        x = _LEFT + labels + (i % per_row) * panel
        y = _TOP + (i // per_row) * height
        drawing.add(Text(x, y + 6, name, 13, bold=True))
        _panel(drawing, found, cosines, x, y + 26 + heads - 12, cell, labelled=i % per_row == 0)
    return drawing


def _panel(
    drawing: Drawing,
    found: Similarity,
    cosines: FloatArray,
    x: float,
    y: float,
    cell: float,
    *,
    labelled: bool,
) -> None:
    size = min(12.0, cell * 0.8)
    for c, token in enumerate(found.columns):
        label = shorten(token, _LETTERS)
        drawing.add(Text(x + (c + 0.6) * cell, y - 6, label, size, turned=45))
    for r, token in enumerate(found.rows):
        middle = y + (r + 0.5) * cell
        if labelled:
            label = shorten(token, _LETTERS)
            drawing.add(Text(x - 8, middle + size * 0.35, label, size, anchor="end"))
        for c, other in enumerate(found.columns):
            value = float(cosines[r, c])
            colour = "blue" if value >= 0 else "orange"
            place = (x + c * cell, y + r * cell, cell - 1, cell - 1)
            shade = round(min(abs(value), 1.0) * 0.9, 3)
            title = f"{token}, {other}: {value:.3f}"
            drawing.add(Rect(*place, "grid", 0.25), Rect(*place, colour, shade, title))
            if cell >= 26:
                ink = "paper" if shade > 0.55 else "ink"
                where = (x + (c + 0.5) * cell - 0.5, middle + 3)
                drawing.add(Text(*where, f"{value:.2f}", 9, anchor="middle", colour=ink))
