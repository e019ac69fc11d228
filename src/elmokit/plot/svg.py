"""A drawing as SVG, and as a page around it: nothing is fetched, light and dark by the reader."""

from __future__ import annotations

from elmokit.html import escape
from elmokit.plot.drawing import Drawing, Line, Mark, Rect, Shape, Text

LIGHT = {
    "ink": "#1c2430",
    "faint": "#5b6675",
    "grid": "#d5dae1",
    "paper": "#ffffff",
    "blue": "#0072b2",
    "orange": "#d55e00",
    "green": "#009e73",
    "purple": "#b0569b",
    "sky": "#3a9bdc",
    "gold": "#b58900",
    "red": "#a4262c",
    "grey": "#6b7280",
}
DARK = {
    "ink": "#e6e9ee",
    "faint": "#9aa5b4",
    "grid": "#3a4452",
    "paper": "#14191f",
    "blue": "#4fb0f0",
    "orange": "#ff8f40",
    "green": "#2fd0a0",
    "purple": "#df8fce",
    "sky": "#9cd3ff",
    "gold": "#f0c649",
    "red": "#ff7b80",
    "grey": "#a6b0bd",
}
FONT = "system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif"


def to_svg(drawing: Drawing) -> str:
    """Return an SVG document that stands for itself, or inside a page."""
    width, height = _number(drawing.width), _number(drawing.height)
    shapes = "\n".join(_shape(shape) for shape in drawing.shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="elmo" role="img" '
        f'viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'style="max-width:100%;height:auto">\n'
        f"<title>{escape(drawing.title)}</title>\n"
        f"<desc>{escape(drawing.note)}</desc>\n"
        f"<style>{_style()}</style>\n"
        f'<rect class="paper" width="{width}" height="{height}"/>\n'
        f"{shapes}\n</svg>\n"
    )


def to_page(drawing: Drawing) -> str:
    """Return an HTML page with the drawing and its note."""
    page = f"body{{margin:2rem auto;max-width:{_number(drawing.width)}px;padding:0 1rem;"
    page += f"font:16px/1.5 {FONT};background:{LIGHT['paper']};color:{LIGHT['ink']}}}"
    page += f"@media(prefers-color-scheme:dark){{body{{background:{DARK['paper']};"
    page += f"color:{DARK['ink']}}}}}"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f"<title>{escape(drawing.title)}</title>\n<style>{page}</style>\n</head>\n<body>\n"
        f"{to_svg(drawing)}<p>{escape(drawing.note)}</p>\n</body>\n</html>\n"
    )


def _style() -> str:
    """Return the colours of both papers, as classes that only drawings have."""

    def classes(colours: dict[str, str]) -> str:
        return "".join(
            f".elmo .{name}{{fill:{value}}}.elmo .{name}-line{{stroke:{value}}}"
            for name, value in colours.items()
        )

    return (
        f".elmo{{font-family:{FONT}}}{classes(LIGHT)}"
        f"@media(prefers-color-scheme:dark){{{classes(DARK)}}}"
    )


def _shape(shape: Shape) -> str:
    if isinstance(shape, Rect):
        opacity = "" if shape.opacity >= 1 else f' fill-opacity="{shape.opacity:.3g}"'
        return (
            f'<rect class="{shape.colour}" x="{_number(shape.x)}" y="{_number(shape.y)}" '
            f'width="{_number(shape.width)}" height="{_number(shape.height)}"{opacity}'
            f"{_titled('rect', shape.title)}"
        )
    if isinstance(shape, Line):
        return (
            f'<line class="{shape.colour}-line" x1="{_number(shape.x1)}" y1="{_number(shape.y1)}" '
            f'x2="{_number(shape.x2)}" y2="{_number(shape.y2)}" '
            f'stroke-width="{_number(shape.width)}"/>'
        )
    if isinstance(shape, Mark):
        return _mark(shape)
    return _text(shape)


def _mark(mark: Mark) -> str:
    look = f'class="{mark.colour} paper-line" fill-opacity="0.9"'
    if mark.shape == "circle":
        place = f'cx="{_number(mark.x)}" cy="{_number(mark.y)}" r="{_number(mark.radius)}"'
        return f"<circle {look} {place}{_titled('circle', mark.title)}"
    points = " ".join(f"{_number(x)},{_number(y)}" for x, y in corners(mark))
    return f'<polygon {look} points="{points}"{_titled("polygon", mark.title)}'


def corners(mark: Mark) -> list[tuple[float, float]]:
    """Return the corners of a mark that is no circle."""
    x, y, r = mark.x, mark.y, mark.radius
    if mark.shape == "square":
        r *= 0.9
        return [(x - r, y - r), (x + r, y - r), (x + r, y + r), (x - r, y + r)]
    if mark.shape == "diamond":
        r *= 1.25
        return [(x, y - r), (x + r, y), (x, y + r), (x - r, y)]
    r *= 1.25
    return [(x, y - r), (x + 0.87 * r, y + 0.6 * r), (x - 0.87 * r, y + 0.6 * r)]


def _text(text: Text) -> str:
    x, y = _number(text.x), _number(text.y)
    anchor = "" if text.anchor == "start" else f' text-anchor="{text.anchor}"'
    bold = ' font-weight="600"' if text.bold else ""
    turned = f' transform="rotate({_number(-text.turned)} {x} {y})"' if text.turned else ""
    return (
        f'<text class="{text.colour}" x="{x}" y="{y}" font-size="{_number(text.size)}"'
        f"{anchor}{bold}{turned}>{escape(text.text)}</text>"
    )


def _titled(tag: str, title: str) -> str:
    return f"><title>{escape(title)}</title></{tag}>" if title else "/>"


def _number(value: float) -> str:
    return f"{value:.1f}".rstrip("0").rstrip(".")
