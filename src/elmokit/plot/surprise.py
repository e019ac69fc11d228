"""How much each token surprises the two language models: bars above and below the sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from elmokit.embed.scoring import SentenceScore
from elmokit.errors import DataError
from elmokit.plot.drawing import Drawing, Line, Rect, Text, shorten, text_width, ticks
from elmokit.text.vocab import BEGIN, END

_WIDTH = 1000.0
_LEFT, _TOP, _BAR = 64.0, 86.0, 78.0  # pixels of the longest bar
_WORDS = 30.0  # pixels between the bars above and those below
_LETTERS = 18
_MOST = 400


class _Place(NamedTuple):
    """A token with its surprise in bits; None where a direction is not asked."""

    word: str
    forward: float | None
    backward: float | None
    unknown: bool = False

    @property
    def width(self) -> float:
        return max(38.0, text_width(shorten(self.word, _LETTERS)) + 12)


def draw_surprise(scores: Sequence[SentenceScore]) -> Drawing:
    """Draw a strip for each sentence: -log2 p of each token, forward above and backward below."""
    if not scores or sum(len(score.tokens) for score in scores) > _MOST:
        raise DataError(
            f"A picture needs 1 to {_MOST} tokens, found {sum(len(s.tokens) for s in scores)} in "
            f"{len(scores)} sentences."
        )
    strips = [(score, rows) for score in scores for rows in [_rows(_places(score))]]
    n_rows = sum(len(rows) for _, rows in strips)
    used = max(sum(place.width for place in row) for _, rows in strips for row in rows)
    row_height = 2 * _BAR + _WORDS + 26
    drawing = Drawing(
        max(_LEFT + used + 24, 600),
        _TOP + n_rows * row_height + len(scores) * 26,
        "How much each token surprises the two language models",
        "Bars above a token: the surprise of the forward model, which knows what stands before it; "
        "below: that of the backward model, which knows what follows. One bit more is half the "
        "probability. A token with a star is not in the vocabulary and counts as <UNK>.",
    )
    drawing.head("bits, -log2 p", 20)
    drawing.add(
        Rect(130, 38, 10, 10, "blue"),
        Text(146, 47, "forward: knows what stands before", colour="faint"),
        Rect(372, 38, 10, 10, "orange"),
        Text(388, 47, "backward: knows what follows", colour="faint"),
    )
    every = [
        bits for s, _ in strips for p in _places(s) for bits in (p.forward, p.backward) if bits
    ]
    most = max([*every, 1.0])
    y = _TOP
    for score, rows in strips:
        told = (
            f"perplexity {score.perplexity:.1f}: forward {score.forward_perplexity:.1f}, backward "
            f"{score.backward_perplexity:.1f}"
        )
        drawing.add(Text(20, y, told, 12, bold=True))
        y += 26
        for row in rows:
            _strip(drawing, row, y, most)
            y += row_height
    return drawing


def _places(score: SentenceScore) -> list[_Place]:
    bits = [-1 / math.log(2) * p for p in (*score.forward, *score.backward)]
    n = len(score.tokens)
    words = zip(score.tokens, bits[:n], bits[n:], score.unknown, strict=True)
    return [
        _Place(BEGIN, None, -score.begin / math.log(2)),
        *(_Place(*word) for word in words),
        _Place(END, -score.end / math.log(2), None),
    ]


def _rows(places: Sequence[_Place]) -> list[list[_Place]]:
    """Break a sentence into lines that fit."""
    rows: list[list[_Place]] = [[]]
    width = 0.0
    for place in places:
        if rows[-1] and width + place.width > _WIDTH - _LEFT:
            rows.append([])
            width = 0.0
        rows[-1].append(place)
        width += place.width
    return rows


def _strip(drawing: Drawing, row: Sequence[_Place], y: float, most: float) -> None:
    above, below = y + _BAR, y + _BAR + _WORDS
    right = _LEFT + sum(place.width for place in row)
    for tick in ticks(most, 4):
        length = tick / most * _BAR
        for level in (above - length, below + length):
            drawing.add(
                Line(_LEFT - 4, level, right, level),
                Text(_LEFT - 9, level + 4, f"{tick:g}", 10, "end", "faint"),
            )
    x = _LEFT
    for place in row:
        width = place.width
        middle = x + width / 2
        special = place.word in (BEGIN, END)
        label = shorten(place.word, _LETTERS) + ("*" if place.unknown else "")
        ink = "faint" if special else "ink"
        drawing.add(Text(middle, above + _WORDS / 2 + 4, label, 12, "middle", ink))
        for name, value, colour in (
            ("forward", place.forward, "blue"),
            ("backward", place.backward, "orange"),
        ):
            if value is None:
                continue
            length = max(value / most * _BAR, 0.5)
            top = above - length if name == "forward" else below
            title = f"{place.word}, {name}: {value:.2f} bits, p = {2**-value:.3g}"
            drawing.add(Rect(x + 4, top, width - 8, length, colour, 0.85, title))
        x += width
