"""The base class of the figures, their colors, and output as SVG, PNG or PDF files."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from elmokit.errors import OutputError, optional_imports, suggest
from elmokit.storage.atomic import replace_file

with optional_imports("plot", "Plotting"):
    import matplotlib
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure

SUFFIXES = (".svg", ".png", ".pdf")
#: Colors of categories, based on the colorblind-safe palette of Okabe and Ito.
COLORS = ("#0072b2", "#d55e00", "#009e73", "#a3508c", "#56b4e9", "#b58900", "#a4262c", "#6b7280")
MARKERS = ("o", "s", "^", "D")
BLUE, ORANGE, GRAY = COLORS[0], COLORS[1], COLORS[-1]
#: Color map from white (0) to blue (1).
SHADES = LinearSegmentedColormap.from_list("elmo-shades", ["white", BLUE])
#: Color map from orange (-1) to white (0) to blue (1).
SIGNED = LinearSegmentedColormap.from_list("elmo-signed", [ORANGE, "white", BLUE])


class ElmoFigure(Figure):
    """A matplotlib figure with a title. Notebooks display it as SVG.

    Args:
        width: Width in inches.
        height: Height in inches.
        title: Title above the figure. Titles of more than 200 characters are truncated.
        description: Description of the figure, stored in the metadata of the file.
        options: Keyword arguments of `matplotlib.figure.Figure`.
    """

    def __init__(
        self, width: float, height: float, title: str, description: str = "", **options: Any
    ) -> None:
        super().__init__(figsize=(width, height), **options)
        label = format_label(title)
        self.title = label.replace(r"\$", "$")
        self.description = description
        self.suptitle(label, x=0.01, ha="left", fontsize=13, fontweight="bold")

    def save(self, file: Path | io.BytesIO, kind: str) -> None:
        """Write the figure to a file in the format `kind`, "svg", "png" or "pdf"."""
        metadata: dict[str, str | None] = {"Title": self.title}
        metadata["Subject" if kind == "pdf" else "Description"] = self.description
        if date := {"svg": "Date", "pdf": "CreationDate"}.get(kind):
            metadata[date] = None  # so that the output is deterministic
        # Keep text in SVG files as text, so that it can be searched. Avoid Type 3 fonts in PDF
        # files, because some publishers reject such fonts.
        with matplotlib.rc_context(
            {"svg.fonttype": "none", "svg.hashsalt": "elmokit", "pdf.fonttype": 42}
        ):
            self.savefig(file, format=kind, dpi=150, bbox_inches="tight", metadata=metadata)

    def _repr_html_(self) -> str:
        file = io.BytesIO()
        self.save(file, "svg")
        text = file.getvalue().decode("utf-8")
        return text[text.index("<svg") :]


def check_figure_path(path: Path) -> None:
    """Raise an `OutputError` if `path` is a directory or has an unsupported extension."""
    if path.suffix.lower() not in SUFFIXES:
        raise OutputError(
            f"{path} does not have a supported file extension. Expected one of: "
            f"{', '.join(SUFFIXES)}.{suggest(path.suffix.lower(), SUFFIXES)}"
        )
    if path.is_dir():
        raise OutputError(f"{path} is a directory. Specify the path of a file.")


def save_figure(figure: ElmoFigure, path: str | Path) -> None:
    """Write a figure as SVG, PNG or PDF, depending on the file extension."""
    path = Path(path)
    check_figure_path(path)
    with replace_file(path) as temporary:
        figure.save(temporary, path.suffix.lower()[1:])


def format_label(text: str, max_characters: int = 200) -> str:
    """Truncate text, replace control characters, and escape "$" for matplotlib."""
    if len(text) > max_characters:
        text = text[: max_characters - 1].rstrip() + "…"
    return "".join(c if c.isprintable() else "\ufffd" for c in text).replace("$", r"\$")
