"""Shapes on a sheet of paper: what all pictures are made of, whoever draws them in the end.

Coordinates are pixels from the upper left corner. Colours are names: "ink" and "faint" for writing,
"grid" for lines, "paper", and the ten of `COLOURS`, which the colour-blind can tell apart; each
drawer knows them for light and for dark paper. A shade is a colour with an opacity, so that it
fits any paper.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Anchor = Literal["start", "middle", "end"]

#: Categories: Okabe and Ito's colours (without black), the last ones varied in lightness.
COLOURS = ("blue", "orange", "green", "purple", "sky", "gold", "red", "grey")
SHAPES = ("circle", "square", "triangle", "diamond")

# A letter of 12 pixels is about this wide, in fonts without serifs.
_LETTER = 0.56


@dataclass(frozen=True)
class Rect:
    """A rectangle; `title` is what hovering over it shows."""

    x: float
    y: float
    width: float
    height: float
    colour: str
    opacity: float = 1.0
    title: str = ""


@dataclass(frozen=True)
class Line:
    """A straight line."""

    x1: float
    y1: float
    x2: float
    y2: float
    colour: str = "grid"
    width: float = 1.0


@dataclass(frozen=True)
class Mark:
    """A point, in one of `SHAPES`."""

    x: float
    y: float
    radius: float
    colour: str
    shape: str = "circle"
    title: str = ""


@dataclass(frozen=True)
class Text:
    """Writing; `y` is its base line. Turned text runs upwards."""

    x: float
    y: float
    text: str
    size: float = 12.0
    anchor: Anchor = "start"
    colour: str = "ink"
    bold: bool = False
    turned: float = 0.0


Shape = Rect | Line | Mark | Text


@dataclass
class Drawing:
    """A picture.

    Attributes:
        width: In pixels.
        height: In pixels.
        title: What it shows, in a line.
        note: What to see in it, for the page it stands on.
        shapes: What is drawn, the lowest first.
    """

    width: float
    height: float
    title: str
    note: str = ""
    shapes: list[Shape] = field(default_factory=list)

    def add(self, *shapes: Shape) -> None:
        """Draw on top of what is there."""
        self.shapes += shapes

    def head(self, text: str = "", x: float = 20.0) -> None:
        """Write the title, and a line below it."""
        self.add(Text(x, 28, self.title, 16, bold=True))
        if text:
            self.add(Text(x, 47, text, 12, colour="faint"))

    def _repr_html_(self) -> str:
        from elmokit.plot.svg import to_svg

        return to_svg(self)


def text_width(text: str, size: float = 12.0) -> float:
    """Guess how wide a text is."""
    return len(text) * size * _LETTER


def shorten(text: str, letters: int) -> str:
    """Cut a text that is longer than so many letters."""
    return text if len(text) <= letters else text[: max(letters - 1, 1)].rstrip() + "…"


def ticks(largest: float, about: int = 4) -> list[float]:
    """Return round numbers from 0 up to the largest value."""
    if largest <= 0:
        return [0.0]
    step = largest / about
    power = 1.0
    while power * 10 <= step:
        power *= 10
    while power > step:
        power /= 10
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= step * 0.99)
    return [i * step for i in range(int(largest / step + 1e-9) + 1)]
