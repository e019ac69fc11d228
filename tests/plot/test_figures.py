"""The four figures: correct values, and errors for input that cannot be plotted."""

from __future__ import annotations

import io
import itertools
import json
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.text import Text

import elmokit
from elmokit.cli.main import run
from elmokit.embed.model import ElmoModel
from elmokit.embed.scoring import SentenceScore
from elmokit.errors import ConfigError, DataError, OutputError
from elmokit.plot.figure import ElmoFigure, check_figure_path, save_figure
from elmokit.plot.layers import draw_layers, read_mixes
from elmokit.plot.senses import Use, draw_senses, project_index_senses, project_senses, read_uses
from elmokit.plot.similarity import compute_similarity, draw_similarity
from elmokit.plot.surprise import draw_surprise
from elmokit.search.build import IndexSettings, build_index
from elmokit.search.index import TokenIndex
from elmokit.text.marked import MarkedWord
from tests.conftest import TINY_MODEL

USES = "He will [play] now .\tsport\nThe [play] was long .\tstage\nA [play] by him .\tstage\n"


@pytest.fixture(scope="module")
def elmo() -> ElmoModel:
    return elmokit.load(TINY_MODEL, device="cpu")


def texts(picture: ElmoFigure) -> list[str]:
    """Write a figure, and return all of its texts."""
    picture.save(io.BytesIO(), "svg")
    found = [text for text in picture.findobj(Text) if text.get_visible() and text.get_text()]
    return [text.get_text() for text in found]


# ----------------------------------------------------------------------------------------- senses


def test_layer_0_is_one_point_and_the_others_are_not(elmo: ElmoModel, tmp_path: Path) -> None:
    (tmp_path / "uses.txt").write_text(USES)
    found = project_senses(elmo, read_uses(tmp_path / "uses.txt"))
    assert found.word == "play"
    assert found.groups == ["sport", "stage", "stage"]
    assert [plane.n_distinct for plane in found.planes] == [1, 3, 3]
    assert not found.planes[0].points.any()
    picture = draw_senses(found)
    labels = texts(picture)
    assert "one vector for all 3 uses" in labels
    assert "colored by sense" in labels
    assert " 1  He will [play] now ." in labels
    layer_2 = picture.axes[2]
    drawn = np.concatenate([line.get_xydata() for line in layer_2.lines])
    assert sorted(drawn.tolist()) == sorted(found.planes[2].points.tolist())


def test_labels_of_uses_do_not_overlap(elmo: ElmoModel) -> None:
    words = ["now", "then", "later", "today", "soon", "again", "there", "here", "well", "alone"]
    uses = [Use(MarkedWord.parse(f"He will [play] {word} .")) for word in words for _ in (1, 2)]
    picture = draw_senses(project_senses(elmo, uses, layer="top", clusters=2))
    picture.draw_without_rendering()
    digits = [Text.get_window_extent(label) for label in picture.axes[0].texts]
    assert len(digits) == 20
    assert not [1 for a, b in itertools.combinations(digits, 2) if a.overlaps(b)]


def test_all_layers_are_plotted_by_default(elmo: ElmoModel) -> None:
    uses = [Use(MarkedWord.parse(line.partition("\t")[0])) for line in USES.splitlines()]
    assert (
        project_senses(elmo, uses).to_dict()
        == project_senses(elmo, uses, layer=[0, 1, 2]).to_dict()
    )
    assert list(compute_similarity(elmo, "I read it .").cosines) == [
        "layer 0",
        "layer 1",
        "layer 2",
    ]


def test_distances_of_three_points_are_preserved(elmo: ElmoModel) -> None:
    uses = [Use(MarkedWord.parse(line.partition("\t")[0])) for line in USES.splitlines()]
    found = project_senses(elmo, uses, layer="top")
    (plane,) = found.planes
    layers = [elmo.embed(" ".join(u.marked.tokens)).top[u.marked.position] for u in uses]
    vectors = np.stack([v / np.linalg.norm(v) for v in layers])
    for i, j in ((0, 1), (0, 2), (1, 2)):
        on_plane = float(np.linalg.norm(plane.points[i] - plane.points[j]))
        assert on_plane == pytest.approx(float(np.linalg.norm(vectors[i] - vectors[j])), abs=1e-4)
    assert sum(plane.explained) == pytest.approx(1, abs=1e-4)
    assert all(group.startswith("cluster ") for group in found.groups)


def test_many_uses_from_an_index_without_a_model(elmo: ElmoModel, tmp_path: Path) -> None:
    words = ["Play", "play"]
    lines = [f"the {'old ' * (i % 7)}{words[i % 2]} {i} was on .\n" for i in range(40)]
    (tmp_path / "text.txt").write_text("".join(lines))
    settings = IndexSettings(tokenized=True)
    build_index(elmo, [tmp_path / "text.txt"], tmp_path / "index", settings)
    index = TokenIndex.open(tmp_path / "index")
    found = project_index_senses(index, "play", limit=30, clusters=2)
    assert len(found.uses) == 30
    assert {use.marked.word for use in found.uses} == {"Play", "play"}
    assert [plane.n_distinct for plane in found.planes] == [2, 30, 30]
    assert found.planes[0].nearest_agree is None
    assert set(found.groups) == {"cluster 1", "cluster 2"}
    labels = texts(draw_senses(found))
    assert any("2 distinct vectors for 30 uses" in text for text in labels)
    assert not any("[Play]" in text for text in labels)  # too many to be listed
    with pytest.raises(DataError, match="'xyz' is not a word of the index"):
        project_index_senses(index, "xyz")


def test_invalid_uses_are_identified(elmo: ElmoModel, tmp_path: Path) -> None:
    path = tmp_path / "uses.txt"
    path.write_text("a [b] c\nno word\n")
    with pytest.raises(DataError, match=r"uses\.txt, line 2: Expected exactly one bracketed word"):
        read_uses(path)
    with pytest.raises(DataError, match="expected at least 3"):
        project_senses(elmo, [Use(MarkedWord(("a",), 0))])
    mixed = [Use(MarkedWord(("a",), 0), sense) for sense in ("x", "", "x")]
    with pytest.raises(DataError, match="The sense is missing for 1 of 3 uses"):
        project_senses(elmo, mixed)


# ------------------------------------------------------------------------------------- similarity


def test_cells_are_cosines(elmo: ElmoModel) -> None:
    found = compute_similarity(elmo, "I read it .", ["You", "read"])
    a, b = elmo.embed("I read it ."), elmo.embed([["You", "read"]])[0]
    for j, cosines in enumerate(found.cosines.values()):
        for r in range(4):
            for c in range(2):
                x, y = a.layers[j, r], b.layers[j, c]
                expected = x @ y / np.linalg.norm(x) / np.linalg.norm(y)
                assert cosines[r, c] == pytest.approx(float(expected), abs=1e-5)
    assert found.cosines["layer 0"][1, 1] == pytest.approx(1, abs=1e-5)
    picture = draw_similarity(found)
    assert {"I", "You", "layer 2", "1.00"} <= set(texts(picture))
    for axes, cosines in zip(picture.axes, found.cosines.values(), strict=False):
        np.testing.assert_array_equal(axes.images[0].get_array(), cosines)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 60)])
def test_any_number_of_tokens_can_be_plotted(elmo: ElmoModel, rows: int, columns: int) -> None:
    found = compute_similarity(elmo, ["extraordinarily-long"] * rows, ["b"] * columns)
    assert texts(draw_similarity(found)).count("b") >= 3 * columns


def test_sentences_that_cannot_be_plotted_are_reported(elmo: ElmoModel) -> None:
    for sentence in ("", "a " * 61):
        with pytest.raises(DataError, match="1 to 60"):
            compute_similarity(elmo, sentence)


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


def test_layer_weights_are_shown_at_the_input_or_output_of_the_task(tmp_path: Path) -> None:
    both = {
        "input": {"s": [0.25, 0.7, 0.05], "gamma": 1.5},
        "output": {"s": [0.1, 0.2, 0.7], "gamma": 0.5},
    }
    folders = [
        task_folder(tmp_path / "a", "ner", {"input": both["input"]}),
        task_folder(tmp_path / "b", "snli", both),
    ]
    learned = read_mixes(folders)
    labels = texts(draw_layers(learned))
    assert labels.count("0.700") == 3
    assert labels.count("none") == 1  # ner has no mix at the output
    assert {"ner\ngamma 1.50", "snli\ngamma 0.50"} <= set(labels)
    assert list(learned) == ["ner", "snli"]
    again = read_mixes([folders[0], task_folder(tmp_path / "c", "ner", both)])
    assert list(again) == ["ner (a)", "ner (c)"]


def test_directories_without_weights_are_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        read_mixes([tmp_path])
    with pytest.raises(ConfigError, match="trained without ELMo"):
        read_mixes([task_folder(tmp_path / "a", "ner", {})])
    with pytest.raises(ConfigError):
        read_mixes([task_folder(tmp_path / "b", "ner", {"input": {"s": 3}})])


# ---------------------------------------------------------------------------------------- surprisal


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


def test_bars_show_bits_and_stay_inside_the_axes() -> None:
    picture = draw_surprise([a_score()])
    assert "purrs*" in texts(picture)
    heights = [[bar.get_height() for bar in axes.patches] for axes in picture.axes]
    assert heights[0] == pytest.approx([1, 2, 8, 1])  # the, cat, purrs, </S>
    assert heights[1] == pytest.approx([1, 1, 1, 4])  # <S>, the, cat, purrs
    for axes in picture.axes:
        assert max(axes.get_ylim()) >= 8


def test_long_sentences_are_wrapped_and_too_long_ones_rejected() -> None:
    picture = draw_surprise([a_score(60)])
    assert len(picture.axes) > 2
    assert sum(len(axes.patches) for axes in picture.axes) == 2 * 61
    for scores in ([a_score(300), a_score(300)], []):
        with pytest.raises(DataError, match="expected 1 to 400"):
            draw_surprise(scores)


# ------------------------------------------------------------------------------------------ files

EVIL = "</text><script>alert('x')</script>\" & $a_b$ \x00\x1b\ud800\uffff"


def test_suffix_selects_the_format_for_any_tokens(tmp_path: Path) -> None:
    score = a_score()
    picture = draw_surprise([replace(score, tokens=("cost", "$5_a$", EVIL))])
    save_figure(picture, tmp_path / "a.svg")
    root = ElementTree.fromstring((tmp_path / "a.svg").read_text("utf-8"))
    assert not [e for e in root.iter() if e.tag.endswith("script")]
    assert "$5_a$" in "".join(root.itertext())
    assert picture._repr_html_().startswith("<svg")
    save_figure(picture, tmp_path / "a.PNG")
    assert (tmp_path / "a.PNG").read_bytes().startswith(b"\x89PNG")
    (tmp_path / "d.svg").mkdir()
    for name in ("a.gif", "a", "d.svg"):
        with pytest.raises(OutputError):
            check_figure_path(tmp_path / name)


@pytest.mark.parametrize("package", ["matplotlib", pytest.param("sklearn", marks=pytest.mark.slow)])
def test_missing_package_is_reported_before_the_model_is_loaded(package: str) -> None:
    code = (
        f"import sys; sys.modules['{package}'] = None\n"
        "sys.argv = ['elmo', 'plot', 'senses', 'no-file', '-o', 'a.svg']\n"
        "from elmokit.cli.main import run; run()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "elmokit[plot]" in done.stderr


# ----------------------------------------------------------------------------------------- commands


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


def test_commands_write_plots_and_print_their_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    elmo = command(monkeypatch, capsys)
    (tmp_path / "uses.txt").write_text(USES)
    model = ("--model", TINY_MODEL, "--json")
    code, output, _ = elmo("senses", tmp_path / "uses.txt", "-o", tmp_path / "a.png", *model)
    assert code == 0
    labels = json.loads(output)
    assert [plane["n_distinct"] for plane in labels["planes"]] == [1, 3, 3]
    assert (tmp_path / "a.png").stat().st_size > 1000
    code, output, _ = elmo(
        *("similarity", "I read", "You read it", "--layer", "mix", "--mix", "0,0,1"),
        *("-o", tmp_path / "b.svg", *model),
    )
    assert code == 0
    assert np.shape(json.loads(output)["cosines"]["mix"]) == (2, 3)
    pdf = tmp_path / "d.pdf"
    assert elmo("similarity", "I read", "You read it", "-o", pdf, *model)[0] == 0
    assert pdf.read_bytes().startswith(b"%PDF-")
    assert b"/Type3" not in pdf.read_bytes()
    code, _, errors = elmo("surprise", "a b", "-o", tmp_path / "c.svg", "--model", TINY_MODEL)
    assert code == 1
    assert "no LM head" in errors
    code, _, errors = elmo("layers", tmp_path, "-o", tmp_path / "c.svg")
    assert code == 1
    code, _, errors = elmo("senses", tmp_path / "uses.txt", "-o", tmp_path / "c.gif", *model)
    assert code == 1
    assert "does not have a supported file extension" in errors
    assert elmo("senses", tmp_path / "uses.txt", "-o", "c.svg", "--word", "play", *model)[0] == 2
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "b.svg", "d.pdf", "uses.txt"]
