"""The surprisal of each token under the two language models, as bars above and below it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from elmokit.embed.scoring import SentenceScore
from elmokit.errors import DataError
from elmokit.plot.figure import BLUE, ORANGE, Picture, readable
from elmokit.text.vocab import BEGIN, END

_WIDTH = 10.0  # inches per line of tokens
_ROW = 2.6  # inches of the bars above and below a line
_LETTERS = 18
_MOST = 400


class _Place(NamedTuple):
    """A token with its surprisal in bits; None: the direction does not predict it."""

    word: str
    forward: float | None
    backward: float | None
    unknown: bool = False

    @property
    def label(self) -> str:
        return readable(self.word, _LETTERS) + ("*" if self.unknown else "")

    @property
    def width(self) -> float:
        """Width in inches, so that labels do not overlap."""
        return max(0.4, 0.1 * len(self.label) + 0.12)


def draw_surprise(scores: Sequence[SentenceScore]) -> Picture:
    """Draw bars for each sentence: -log2 p of each token, forward above and backward below."""
    if not scores or sum(len(score.tokens) for score in scores) > _MOST:
        raise DataError(
            f"Found {sum(len(s.tokens) for s in scores)} tokens in {len(scores)} sentences; a "
            f"figure can show 1 to {_MOST}."
        )
    rows = [(score, i, row) for score in scores for i, row in enumerate(_rows(_places(score)))]
    width = max(sum(place.width for place in row) for _, _, row in rows)
    bits = [b for _, _, row in rows for p in row for b in (p.forward, p.backward) if b is not None]
    ticks = MaxNLocator(4).tick_values(0, max(*bits, 1.0))  # the last tick is above all bars
    picture = Picture(
        max(width + 0.9, 6),
        len(rows) * _ROW + 0.6,
        "Surprisal of each token under the two language models",
        "Bars above a token show its surprisal under the forward model, given the words before it; "
        "bars below, under the backward model, given the words after it. One more bit is half the "
        "probability. Tokens with * are not in the vocabulary and are scored as <UNK>.",
        layout="constrained",
    )
    panels = picture.subplots(2 * len(rows), 1, squeeze=False)[:, 0]
    for (score, line, row), above, below in zip(rows, panels[::2], panels[1::2], strict=True):
        _bars(above, [(p, p.forward) for p in row], BLUE, "forward: given the words before")
        _bars(below, [(p, p.backward) for p in row], ORANGE, "backward: given the words after")
        for axes in (above, below):
            axes.set(xlim=(0, width), ylim=(0, ticks[-1]), yticks=ticks)
            axes.grid(axis="y", color="#dfe3e8")
            axes.set_axisbelow(True)
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0, labelsize=8)
        above.tick_params(axis="x", labelsize=9)
        below.set_xticks([])
        below.invert_yaxis()
        if line == 0:
            above.set_title(
                f"perplexity {score.perplexity:.1f}: forward {score.forward_perplexity:.1f}, "
                f"backward {score.backward_perplexity:.1f}",
                loc="left",
                fontsize=10,
                fontweight="bold",
            )
    panels[0].set_ylabel("bits, -log2 p", fontsize=8)
    picture.legend(
        handles=[panels[0].containers[0], panels[1].containers[0]],
        loc="outside lower left",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    return picture


def _bars(axes: Axes, row: Sequence[tuple[_Place, float | None]], color: str, label: str) -> None:
    widths = [place.width for place, _ in row]
    middles = [sum(widths[:i]) + width / 2 for i, width in enumerate(widths)]
    bars = [(x, w, v) for x, w, (_, v) in zip(middles, widths, row, strict=True) if v is not None]
    axes.bar(
        [x for x, _, _ in bars],
        [value for _, _, value in bars],
        [width - 0.1 for _, width, _ in bars],
        color=color,
        alpha=0.85,
        label=label,
    )
    axes.set_xticks(middles, [place.label for place, _ in row])


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
    """Break a sentence into lines."""
    rows: list[list[_Place]] = [[]]
    width = 0.0
    for place in places:
        if rows[-1] and width + place.width > _WIDTH:
            rows.append([])
            width = 0.0
        rows[-1].append(place)
        width += place.width
    return rows
