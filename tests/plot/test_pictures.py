"""The four pictures: right numbers in them, and what cannot be drawn is said."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import elmokit
from elmokit.cli.main import run
from elmokit.embed.model import ElmoModel
from elmokit.embed.scoring import SentenceScore
from elmokit.embed.spaces import choose_spaces
from elmokit.errors import ConfigError, DataError
from elmokit.plot.drawing import Drawing, Mark, Rect, Text
from elmokit.plot.layers import draw_layers, read_mixes
from elmokit.plot.senses import Use, draw_senses, read_uses, senses_in, senses_of
from elmokit.plot.similarity import draw_similarity, similarity_of
from elmokit.plot.surprise import draw_surprise
from elmokit.plot.svg import to_svg
from elmokit.search.index import TokenIndex
from elmokit.search.index_build import IndexSettings, build_index
from elmokit.text.marked import Marked
from tests.conftest import TINY_MODEL

USES = "He will [play] now .\tsport\nThe [play] was long .\tstage\nA [play] by him .\tstage\n"
EVERY = choose_spaces(["0", "1", "2"], 3)


@pytest.fixture(scope="module")
def elmo() -> ElmoModel:
    return elmokit.load(TINY_MODEL, device="cpu")


def texts(drawing: Drawing) -> list[str]:
    ElementTree.fromstring(to_svg(drawing))
    for shape in drawing.shapes:  # nothing lies outside the paper
        if isinstance(shape, Mark | Text):
            assert 0 <= shape.x <= drawing.width
            assert 0 <= shape.y <= drawing.height
    return [shape.text for shape in drawing.shapes if isinstance(shape, Text)]


# ----------------------------------------------------------------------------------------- senses


def test_layer_0_is_one_point_and_the_others_are_not(elmo: ElmoModel, tmp_path: Path) -> None:
    (tmp_path / "uses.txt").write_text(USES)
    found = senses_of(elmo, read_uses(tmp_path / "uses.txt"), EVERY)
    assert found.word == "play"
    assert found.groups == ["sport", "stage", "stage"]
    assert [plane.different for plane in found.planes] == [1, 3, 3]
    assert not found.planes[0].points.any()
    drawing = draw_senses(found)
    told = texts(drawing)
    assert "one vector for all 3 uses" in told
    assert "coloured by sense" in told
    assert "He will [play] now ." in told
    assert sum(isinstance(s, Mark) for s in drawing.shapes) == 2 + 1 + 2 * 3 + 3


def test_every_layer_is_drawn_unless_told(elmo: ElmoModel) -> None:
    uses = [Use(Marked.read(line.partition("\t")[0])) for line in USES.splitlines()]
    assert senses_of(elmo, uses).to_dict() == senses_of(elmo, uses, EVERY).to_dict()
    assert list(similarity_of(elmo, "I read it .").cosines) == ["layer 0", "layer 1", "layer 2"]


def test_distances_on_the_plane_of_three_points_are_those_of_the_vectors(elmo: ElmoModel) -> None:
    uses = [Use(Marked.read(line.partition("\t")[0])) for line in USES.splitlines()]
    found = senses_of(elmo, uses, EVERY[2:])
    (plane,) = found.planes
    layers = [elmo.embed(" ".join(u.at.tokens)).top[u.at.position] for u in uses]
    vectors = np.stack([v / np.linalg.norm(v) for v in layers])
    for i, j in ((0, 1), (0, 2), (1, 2)):
        on_plane = float(np.linalg.norm(plane.points[i] - plane.points[j]))
        assert on_plane == pytest.approx(float(np.linalg.norm(vectors[i] - vectors[j])), abs=1e-4)
    assert sum(plane.shares) == pytest.approx(1, abs=1e-4)
    assert all(group.startswith("cluster ") for group in found.groups)


def test_many_uses_come_from_an_index_without_a_model(elmo: ElmoModel, tmp_path: Path) -> None:
    words = ["Play", "play"]
    lines = [f"the {'old ' * (i % 7)}{words[i % 2]} {i} was on .\n" for i in range(40)]
    (tmp_path / "text.txt").write_text("".join(lines))
    settings = IndexSettings(tokenized=True)
    build_index(elmo, [tmp_path / "text.txt"], tmp_path / "index", settings)
    index = TokenIndex.open(tmp_path / "index")
    found = senses_in(index, "play", EVERY, limit=30, clusters=2)
    assert len(found.uses) == 30
    assert {use.at.word for use in found.uses} == {"Play", "play"}
    assert [plane.different for plane in found.planes] == [2, 30, 30]
    assert found.planes[0].agree is None
    assert set(found.groups) == {"cluster 1", "cluster 2"}
    drawing = draw_senses(found)
    told = texts(drawing)
    assert "2 different vectors for 30 uses" in told
    assert not any("[Play]" in text for text in told)  # too many to be listed
    with pytest.raises(DataError, match="'xyz' is not in the index"):
        senses_in(index, "xyz", EVERY)


def test_bad_uses_are_named(elmo: ElmoModel, tmp_path: Path) -> None:
    path = tmp_path / "uses.txt"
    path.write_text("a [b] c\nno word\n")
    with pytest.raises(DataError, match=r"uses\.txt, line 2: There is no word"):
        read_uses(path)
    with pytest.raises(DataError, match="at least 3 uses"):
        senses_of(elmo, [Use(Marked(("a",), 0))], EVERY)
    mixed = [Use(Marked(("a",), 0), sense) for sense in ("x", "", "x")]
    with pytest.raises(DataError, match="2 of the 3 uses have a sense"):
        senses_of(elmo, mixed, EVERY)


# ------------------------------------------------------------------------------------- similarity


def test_cells_are_the_cosines(elmo: ElmoModel) -> None:
    found = similarity_of(elmo, "I read it .", ["You", "read"], EVERY)
    a, b = elmo.embed("I read it ."), elmo.embed([["You", "read"]])[0]
    for j, cosines in enumerate(found.cosines.values()):
        for r in range(4):
            for c in range(2):
                x, y = a.layers[j, r], b.layers[j, c]
                expected = x @ y / np.linalg.norm(x) / np.linalg.norm(y)
                assert cosines[r, c] == pytest.approx(float(expected), abs=1e-5)
    assert found.cosines["layer 0"][1, 1] == pytest.approx(1, abs=1e-5)
    drawing = draw_similarity(found)
    told = texts(drawing)
    assert {"I", "You", "layer 2"} <= set(told)
    titled = [s for s in drawing.shapes if isinstance(s, Rect) and s.title]
    assert len(titled) == 3 * 4 * 2
    assert any(s.title.startswith("read, read: 1.000") for s in titled)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (60, 60), (3, 60)])
def test_any_size_fits_on_the_paper(elmo: ElmoModel, rows: int, columns: int) -> None:
    found = similarity_of(elmo, ["extraordinarily-long"] * rows, ["b"] * columns, EVERY)
    drawing = draw_similarity(found)
    texts(drawing)
    for shape in drawing.shapes:
        if isinstance(shape, Rect):
            assert shape.x + shape.width <= drawing.width
            assert shape.y + shape.height <= drawing.height


def test_sentences_that_cannot_be_drawn_are_said(elmo: ElmoModel) -> None:
    for sentence in ("", "a " * 61):
        with pytest.raises(DataError, match="1 to 60 tokens"):
            similarity_of(elmo, sentence, None, EVERY)


# ----------------------------------------------------------------------------------------- layers


def task_folder(path: Path, task: str, mixes: Any) -> Path:
    path.mkdir()
    values = {
        "format": "elmokit-task",
        "format_version": 1,
        "task": task,
        "elmo": None,
        "data": "",
        "results": {"mixes": mixes},
        "config": {},
    }
    (path / "config.json").write_text(json.dumps(values))
    (path / "labels.json").write_text("{}")
    return path


def test_layer_weights_stand_where_the_task_uses_them(tmp_path: Path) -> None:
    both = {
        "input": {"s": [0.25, 0.7, 0.05], "gamma": 1.5},
        "output": {"s": [0.1, 0.2, 0.7], "gamma": 0.5},
    }
    folders = [
        task_folder(tmp_path / "a", "ner", {"input": both["input"]}),
        task_folder(tmp_path / "b", "snli", both),
    ]
    learned = read_mixes(folders)
    drawing = draw_layers(learned)
    told = texts(drawing)
    assert told.count("0.700") == 3
    assert told.count("none") == 1  # ner has nothing at the output
    assert told.count("gamma") == 2
    assert [one.name for one in learned] == ["ner", "snli"]
    again = read_mixes([folders[0], task_folder(tmp_path / "c", "ner", both)])
    assert [one.name for one in again] == ["ner (a)", "ner (c)"]


def test_folders_without_weights_are_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read_mixes([tmp_path])
    with pytest.raises(ConfigError, match="uses no ELMo"):
        read_mixes([task_folder(tmp_path / "a", "ner", {})])
    with pytest.raises(ConfigError):
        read_mixes([task_folder(tmp_path / "b", "ner", {"input": {"s": 3}})])


# --------------------------------------------------------------------------------------- surprise


def a_score(n: int = 3) -> SentenceScore:
    half = math.log(0.5)
    return SentenceScore(
        tokens=("the", "cat", "purrs", *["x"] * (n - 3)),
        forward=(half, 2 * half, 8 * half, *[half] * (n - 3)),
        backward=(half, half, 4 * half, *[half] * (n - 3)),
        end=half,
        begin=half,
        unknown=(False, False, True, *[False] * (n - 3)),
    )


def test_bars_are_bits() -> None:
    drawing = draw_surprise([a_score()])
    assert "purrs*" in texts(drawing)
    bars = {s.title.partition(" bits")[0]: s for s in drawing.shapes if isinstance(s, Rect)}
    assert "purrs, forward: 8.00" in bars
    assert "<S>, backward: 1.00" in bars
    assert "<S>, forward: 1.00" not in bars
    cat, purrs = bars["cat, forward: 2.00"], bars["purrs, forward: 8.00"]
    assert purrs.height == pytest.approx(4 * cat.height)
    assert purrs.y + purrs.height == pytest.approx(cat.y + cat.height)  # they stand on one line


def test_long_sentences_are_broken_and_too_long_ones_refused() -> None:
    drawing = draw_surprise([a_score(100)])
    texts(drawing)
    assert drawing.width <= 1100
    with pytest.raises(DataError, match="1 to 400 tokens"):
        draw_surprise([a_score(300), a_score(300)])


# ---------------------------------------------------------------------------------- the commands


def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["elmo", "plot", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            run()
        output, errors = capsys.readouterr()
        return int(ended.value.code or 0), output, errors

    return call


def test_the_commands_write_pictures_and_tell_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elmo = command(monkeypatch, capsys)
    (tmp_path / "uses.txt").write_text(USES)
    model = ("--model", TINY_MODEL, "--json")
    code, output, _ = elmo("senses", tmp_path / "uses.txt", "-o", tmp_path / "a.html", *model)
    assert code == 0
    told = json.loads(output)
    assert [plane["different_vectors"] for plane in told["planes"]] == [1, 3, 3]
    assert "<svg" in (tmp_path / "a.html").read_text()
    code, output, _ = elmo(
        *("similarity", "I read", "You read it", "--layer", "mix", "--mix", "0,0,1"),
        *("-o", tmp_path / "b.svg", *model),
    )
    assert code == 0
    assert np.shape(json.loads(output)["cosines"]["mix"]) == (2, 3)
    code, _, errors = elmo("surprise", "a b", "-o", tmp_path / "c.svg", "--model", TINY_MODEL)
    assert code == 1
    assert "no language-model head" in errors
    code, _, errors = elmo("layers", tmp_path, "-o", tmp_path / "c.svg")
    assert code == 1
    code, _, errors = elmo("senses", tmp_path / "uses.txt", "-o", tmp_path / "c.gif", *model)
    assert code == 1
    assert "ends in" in errors
    assert elmo("senses", tmp_path / "uses.txt", "-o", "c.svg", "--word", "play", *model)[0] == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.html", "b.svg", "uses.txt"]
