"""Shapes, and the three kinds of files they end in."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from elmokit.errors import DependencyError, OutputError
from elmokit.html import escape
from elmokit.plot.drawing import COLOURS, SHAPES, Drawing, Line, Mark, Rect, Text, shorten, ticks
from elmokit.plot.files import write_picture
from elmokit.plot.svg import DARK, LIGHT, to_page, to_svg

EVIL = "</text><script>alert('x')</script>\" & $a_b$ \x00\x1b\ud800\uffff"


@pytest.fixture
def drawing() -> Drawing:
    found = Drawing(200, 100, f"title {EVIL}", f"note {EVIL}")
    found.add(
        Rect(0, 0, 10, 10, "blue", 0.5, EVIL),
        Line(0, 0, 10, 10),
        *(Mark(50, 50, 5, "red", shape, EVIL) for shape in SHAPES),
        Text(20, 20, EVIL, turned=45),
    )
    return found


def test_an_svg_is_well_formed_whatever_is_written_in_it(drawing: Drawing) -> None:
    root = ElementTree.fromstring(to_svg(drawing))
    assert not [e for e in root.iter() if e.tag.endswith("script")]
    assert "alert('x')" in "".join(root.itertext())
    page = to_page(drawing)
    assert "<script" not in page
    assert drawing._repr_html_() == to_svg(drawing)


def test_nothing_is_fetched_and_both_papers_are_there(drawing: Drawing) -> None:
    page = to_page(drawing)
    links = re.findall(r"https?://[^\"' )]+", page)
    assert set(links) == {"http://www.w3.org/2000/svg"}
    assert "prefers-color-scheme:dark" in page
    assert not re.search(r"\b(src|href)=", page)
    assert LIGHT.keys() == DARK.keys() >= {*COLOURS, "ink", "faint", "grid", "paper"}


@pytest.mark.parametrize("colours", [LIGHT, DARK])
def test_writing_can_be_read_on_its_paper(colours: dict[str, str]) -> None:
    def light(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(a: str, b: str) -> float:
        low, high = sorted((light(a), light(b)))
        return (high + 0.05) / (low + 0.05)

    assert contrast(colours["ink"], colours["paper"]) > 7
    assert contrast(colours["faint"], colours["paper"]) > 4.5
    for name in COLOURS:
        assert contrast(colours[name], colours["paper"]) > 3


def test_the_suffix_chooses_the_kind(drawing: Drawing, tmp_path: Path) -> None:
    write_picture(drawing, tmp_path / "a.svg")
    write_picture(drawing, tmp_path / "a.HTML")
    assert (tmp_path / "a.svg").read_text("utf-8").startswith("<svg")
    assert (tmp_path / "a.HTML").read_text("utf-8").startswith("<!doctype html>")
    for name in ("a.gif", "a"):
        with pytest.raises(OutputError, match=r"ends in \.svg, \.html, \.png"):
            write_picture(drawing, tmp_path / name)
    (tmp_path / "d.svg").mkdir()
    with pytest.raises(OutputError, match="is a directory"):
        write_picture(drawing, tmp_path / "d.svg")


def test_a_png_is_the_same_picture(drawing: Drawing, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from PIL import Image

    drawing.shapes = [Rect(0, 0, 100, 100, "blue"), Text(110, 50, "cost: $5 and $6_a$")]
    write_picture(drawing, tmp_path / "a.png")
    with Image.open(tmp_path / "a.png") as image:
        assert image.size == (400, 200)
        assert image.convert("RGB").getpixel((50, 50)) == (0, 0x72, 0xB2)
        assert image.convert("RGB").getpixel((390, 190)) == (255, 255, 255)


def test_a_png_without_matplotlib_says_what_to_install(
    drawing: Drawing, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [m for m in sys.modules if m.split(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DependencyError, match=r"elmokit\[plot\]"):
        write_picture(drawing, tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("largest", "expected"),
    [(0, [0]), (1, [0, 0.5, 1]), (19.5, [0, 5, 10, 15]), (0.03, [0, 0.01, 0.02, 0.03])],
)
def test_ticks_are_round_numbers(largest: float, expected: list[float]) -> None:
    assert ticks(largest) == pytest.approx(expected)


def test_texts_are_shortened_and_escaped() -> None:
    assert shorten("abcdef", 6) == "abcdef"
    assert shorten("abcdefg", 6) == "abcde…"
    assert escape('<a href="x">') == "&lt;a href=&quot;x&quot;&gt;"
