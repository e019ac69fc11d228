"""Bar charts of the surprisal of each token under the forward and the backward language model."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import MaxNLocator

from elmokit.embed.scoring import SentenceScore
from elmokit.errors import DataError
from elmokit.plot.figure import BLUE, ORANGE, ElmoFigure, format_label
from elmokit.progress import plural
from elmokit.text.vocab import BEGIN, END

_TOKENS_PER_ROW = 14
_BAR_WIDTH = 0.7  # in inches
_ROW_HEIGHT = 2.6  # in inches
_MAX_TOKENS = 400


def draw_surprise(scores: Sequence[SentenceScore]) -> ElmoFigure:
    """Draw bars for the surprisal of each token, forward above and backward below.

    Args:
        scores: The scores of the sentences, which have at most 400 tokens in total.
    """
    n_tokens = sum(len(score.tokens) for score in scores)
    if not 0 < n_tokens <= _MAX_TOKENS:
        raise DataError(
            f"The text has {plural(n_tokens, 'token')}, expected 1 to {_MAX_TOKENS}. "
            "Choose another text."
        )
    rows = []
    for score in scores:
        unknown = (False, *score.unknown, False)
        words = [format_label(word, 12) for word in (BEGIN, *score.tokens, END)]
        labels = [word + "*" * is_unknown for word, is_unknown in zip(words, unknown, strict=True)]
        # Neither direction predicts the symbol that it starts with.
        log_probs = [
            [math.nan, *score.forward, score.end],
            [score.begin, *score.backward, math.nan],
        ]
        bits = np.array(log_probs) / -math.log(2)
        title = (
            f"perplexity {score.perplexity:.1f} (forward {score.forward_perplexity:.1f}, "
            f"backward {score.backward_perplexity:.1f})"
        )
        for start in range(0, len(labels), _TOKENS_PER_ROW):
            part = slice(start, start + _TOKENS_PER_ROW)
            rows.append((title if start == 0 else "", labels[part], bits[:, part]))
    largest = max(np.nanmax(bits, initial=1.0) for _, _, bits in rows)
    ticks = MaxNLocator(4).tick_values(0, largest)  # the last tick is above all bars
    width = max(len(labels) for _, labels, _ in rows)
    figure = ElmoFigure(
        max(width * _BAR_WIDTH + 0.9, 6),
        len(rows) * _ROW_HEIGHT + 0.6,
        "Surprisal of each token under the two language models",
        "Bars above a token show its surprisal under the forward model, given the preceding "
        "tokens. Bars below show its surprisal under the backward model, given the following "
        "tokens. Each additional bit halves the probability. Tokens marked with * are not in the "
        "vocabulary and are scored as <UNK>.",
        layout="constrained",
    )
    panels = figure.subplots(2 * len(rows), 1, squeeze=False)[:, 0]
    for (title, labels, bits), above, below in zip(rows, panels[::2], panels[1::2], strict=True):
        for axes, values, color, label in (
            (above, bits[0], BLUE, "forward: given the preceding tokens"),
            (below, bits[1], ORANGE, "backward: given the following tokens"),
        ):
            positions = np.flatnonzero(~np.isnan(values))
            axes.bar(positions, values[positions], 0.85, color=color, alpha=0.85, label=label)
            axes.set(xlim=(-0.5, width - 0.5), ylim=(0, ticks[-1]), yticks=ticks)
            axes.grid(axis="y", color="#dfe3e8")
            axes.set_axisbelow(True)
            axes.spines[:].set_visible(False)
            axes.tick_params(length=0, labelsize=8)
        above.set_xticks(range(len(labels)), labels, fontsize=9)
        below.set_xticks([])
        below.invert_yaxis()
        above.set_title(title, loc="left", fontsize=10, fontweight="bold")
    panels[0].set_ylabel("bits, -log2 p", fontsize=8)
    figure.legend(
        handles=[panels[0].containers[0], panels[1].containers[0]],
        loc="outside lower left",
        ncols=2,
        frameon=False,
        fontsize=9,
    )
    return figure
