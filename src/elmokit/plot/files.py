"""Pictures to files: the suffix says what kind."""

from __future__ import annotations

from pathlib import Path

from elmokit.errors import OutputError, nearest
from elmokit.plot.drawing import Drawing
from elmokit.storage.atomic import replace_file

SUFFIXES = (".svg", ".html", ".png")


def check_picture(path: Path) -> None:
    """Raise if no picture can be written to this path, before anything is computed."""
    if path.suffix.lower() not in SUFFIXES:
        raise OutputError(
            f"A picture ends in {', '.join(SUFFIXES)}; found '{path.name}'."
            f"{nearest(path.suffix.lower(), SUFFIXES)}"
        )
    if path.is_dir():
        raise OutputError(f"{path} is a directory, expected the name of a file to write.")


def write_picture(drawing: Drawing, path: str | Path) -> None:
    """Write a drawing as SVG, HTML or PNG, by the suffix of the path."""
    path = Path(path)
    check_picture(path)
    with replace_file(path) as temporary:
        if path.suffix.lower() == ".png":
            from elmokit.plot.png import write_png

            write_png(drawing, temporary)
            return
        from elmokit.plot.svg import to_page, to_svg

        text = to_svg(drawing) if path.suffix.lower() == ".svg" else to_page(drawing)
        temporary.write_text(text, encoding="utf-8")
