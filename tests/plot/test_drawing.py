"""Shapes, and the three kinds of files they end in."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from elmokit.errors import DependencyError, OutputError
from elmokit.plot.drawing import COLOURS, SHAPES, Drawing, Line, Mark, Rect, Text
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


def test_the_suffix_chooses_the_kind(drawing: Drawing, tmp_path: Path) -> None:
    write_picture(drawing, tmp_path / "a.svg")
    write_picture(drawing, tmp_path / "a.HTML")
    assert (tmp_path / "a.svg").read_text("utf-8").startswith("<svg")
    assert (tmp_path / "a.HTML").read_text("utf-8").startswith("<!doctype html>")
    for name in ("a.gif", "a"):
        with pytest.raises(OutputError, match=r"ends in \.svg, \.html, \.png"):
            write_picture(drawing, tmp_path / name)
    (tmp_path / "d.svg").mkdir()
    with pytest.raises(OutputError):
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
