"""Heat maps of the cosine similarity between all tokens of two sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from elmokit.embed.layer_choice import LayerChoice, Layers
from elmokit.embed.model import ElmoModel
from elmokit.embed.tokenized import as_tokens
from elmokit.embed.vectors import FloatArray, unit
from elmokit.errors import DataError
from elmokit.plot.figure import SIGNED, ElmoFigure, readable

_MAX_TOKENS = 60  # per sentence; more are not legible
_MAX_CHARACTERS = 16  # per token


@dataclass(frozen=True, eq=False)
class Similarity:
    """Cosine similarities between the tokens of two sentences.

    Attributes:
        rows: Tokens of the first sentence.
        columns: Tokens of the second sentence.
        cosines: For each layer, by its name: the similarities, (rows, columns).
    """

    rows: list[str]
    columns: list[str]
    cosines: dict[str, FloatArray]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        cosines = {
            name: np.round(values.astype(float), 4).tolist()
            for name, values in self.cosines.items()
        }
        return {"rows": self.rows, "columns": self.columns, "cosines": cosines}


def compute_similarity(
    model: ElmoModel,
    rows: str | Sequence[str],
    columns: str | Sequence[str] | None = None,
    *,
    layer: Layers = "all",
    mix: Sequence[float] | None = None,
    state: Literal["reset", "warm"] = "reset",
) -> Similarity:
    """Compare two sentences, or one sentence with itself, by default in every layer."""
    sentences = [rows] if columns is None else [rows, columns]
    tokens = [as_tokens(sentence, i)[0] for i, sentence in enumerate(sentences)]
    for words in tokens:
        if not 0 < len(words) <= _MAX_TOKENS:
            raise DataError(
                f"A sentence has {len(words)} tokens; a figure can show 1 to {_MAX_TOKENS}."
            )
    layers = model.compute(tokens, state)
    cosines: dict[str, FloatArray] = {}
    for choice in LayerChoice.parse_all(layer, model.config.n_layers, mix):
        a, b = unit(choice.apply(layers[0])), unit(choice.apply(layers[-1]))
        cosines[choice.label] = a @ b.T
    return Similarity(tokens[0], tokens[-1], cosines)


def draw_similarity(similarity: Similarity) -> ElmoFigure:
    """Draw one heat map per layer; darker cells are more similar."""
    n, rows, columns = len(similarity.cosines), len(similarity.rows), len(similarity.columns)
    cell = min(max(9 / (n * columns), 0.2), 0.4)  # inches
    font_size = min(9.0, 36 * cell)
    per_row = max(1, min(n, int(11 / (columns * cell))))
    lines = -(-n // per_row)
    names = [
        [readable(t, _MAX_CHARACTERS) for t in tokens]
        for tokens in (similarity.rows, similarity.columns)
    ]
    labels = [0.1 * max(map(len, side)) for side in names]
    figure = ElmoFigure(
        max(per_row * (columns * cell + 0.3 + labels[1] / 2) + labels[0] + 1, 5),
        lines * (rows * cell + labels[1] + 0.7) + 0.5,
        "Cosine similarity between all tokens",
        "Blue cells are similar; orange cells have a negative cosine.",
        layout="compressed",
    )
    panels = figure.subplots(lines, per_row, squeeze=False, sharey=True).flatten()
    for axes in panels[n:]:
        axes.set_visible(False)
    for axes, (name, cosines) in zip(panels, similarity.cosines.items(), strict=False):
        image = axes.imshow(cosines, cmap=SIGNED, vmin=-1, vmax=1)
        axes.set_title(name, loc="left", fontsize=10, fontweight="bold")
        axes.set_yticks(range(rows), names[0], fontsize=font_size)
        slanted = {"rotation": 45, "ha": "left", "rotation_mode": "anchor"}
        axes.set_xticks(range(columns), names[1], fontsize=font_size, **slanted)
        axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
        axes.spines[:].set_visible(False)
        if cell >= 0.3:
            for (r, c), value in np.ndenumerate(cosines):
                color = "white" if abs(value) > 0.6 else "black"
                axes.text(c, r, f"{value:.2f}", ha="center", va="center", color=color, fontsize=7)
    bar = figure.colorbar(image, ax=panels[:n].tolist(), shrink=0.8, label="cosine")
    bar.outline.set_visible(False)
    return figure
