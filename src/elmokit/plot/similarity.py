"""Heat maps of the cosine similarity between all tokens of two sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from elmokit.embed.layer_choice import LayerChoice, Layers
from elmokit.embed.model import ElmoModel
from elmokit.embed.tokenized import as_tokens
from elmokit.embed.vectors import FloatArray, normalize
from elmokit.errors import DataError
from elmokit.plot.figure import SIGNED, ElmoFigure, format_label
from elmokit.progress import plural

_MAX_TOKENS = 60  # per sentence, so that the figure remains legible
_MAX_CHARACTERS = 16  # per token


@dataclass(frozen=True, eq=False)
class Similarity:
    """Cosine similarities between the tokens of two sentences.

    Attributes:
        rows: Tokens of the first sentence.
        columns: Tokens of the second sentence.
        cosines: The similarities in each layer, shape (rows, columns), keyed by layer name.
    """

    rows: list[str]
    columns: list[str]
    cosines: dict[str, FloatArray]

    def to_dict(self) -> dict[str, Any]:
        """Return the tokens and their similarities as JSON values."""
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
    """Compute the cosine similarity between all tokens of two sentences.

    Args:
        model: The model.
        rows: The first sentence, as a string or as tokens.
        columns: The second sentence. Default: the first sentence.
        layer: The layers to compare, as in `LayerChoice.parse_all`.
        mix: The weights of the layers, for layer "mix".
        state: Initial state of each sentence.
    """
    sentences = [rows] if columns is None else [rows, columns]
    tokens = [as_tokens(sentence, i)[0] for i, sentence in enumerate(sentences)]
    for words in tokens:
        if not 0 < len(words) <= _MAX_TOKENS:
            raise DataError(
                f"A sentence has {plural(len(words), 'token')}, expected 1 to {_MAX_TOKENS}. "
                "Choose another sentence."
            )
    layers = model.compute(tokens, state)
    cosines: dict[str, FloatArray] = {}
    for choice in LayerChoice.parse_all(layer, model.config.n_layers, mix):
        a, b = normalize(choice.apply(layers[0])), normalize(choice.apply(layers[-1]))
        cosines[choice.label] = a @ b.T
    return Similarity(tokens[0], tokens[-1], cosines)


def draw_similarity(similarity: Similarity) -> ElmoFigure:
    """Draw one heat map per layer. Blue is a positive cosine, orange a negative one."""
    n_panels = len(similarity.cosines)
    rows, columns = len(similarity.rows), len(similarity.columns)
    cell_size = min(max(9 / (n_panels * columns), 0.2), 0.4)  # in inches
    font_size = min(9.0, 36 * cell_size)
    panels_per_row = max(1, min(n_panels, int(11 / (columns * cell_size))))
    panel_rows = -(-n_panels // panels_per_row)
    row_labels = [format_label(token, _MAX_CHARACTERS) for token in similarity.rows]
    column_labels = [format_label(token, _MAX_CHARACTERS) for token in similarity.columns]
    row_label_size = 0.1 * max(map(len, row_labels))
    column_label_size = 0.1 * max(map(len, column_labels))
    panel_width = columns * cell_size + 0.3 + column_label_size / 2
    figure = ElmoFigure(
        max(panels_per_row * panel_width + row_label_size + 1, 5),
        panel_rows * (rows * cell_size + column_label_size + 0.7) + 0.5,
        "Cosine similarity between all tokens",
        "Blue cells have a positive cosine; orange cells have a negative cosine.",
        layout="compressed",
    )
    panels = figure.subplots(panel_rows, panels_per_row, squeeze=False, sharey=True).flatten()
    for axes in panels[n_panels:]:
        axes.set_visible(False)
    for axes, (name, cosines) in zip(panels, similarity.cosines.items(), strict=False):
        image = axes.imshow(cosines, cmap=SIGNED, vmin=-1, vmax=1)
        axes.set_title(name, loc="left", fontsize=10, fontweight="bold")
        axes.set_yticks(range(rows), row_labels, fontsize=font_size)
        rotated = {"rotation": 45, "ha": "left", "rotation_mode": "anchor"}
        axes.set_xticks(range(columns), column_labels, fontsize=font_size, **rotated)
        axes.tick_params(top=True, labeltop=True, bottom=False, labelbottom=False, length=0)
        axes.spines[:].set_visible(False)
        if cell_size >= 0.3:
            for (y, x), value in np.ndenumerate(cosines):
                color = "white" if abs(value) > 0.6 else "black"
                axes.text(x, y, f"{value:.2f}", ha="center", va="center", color=color, fontsize=7)
    color_bar = figure.colorbar(image, ax=panels[:n_panels].tolist(), shrink=0.8, label="cosine")
    color_bar.outline.set_visible(False)
    return figure
