"""The recipes behind the pages of docs/explanation: what is committed is what they make."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "recipes"

pytestmark = pytest.mark.skipif(not RECIPES.exists(), reason="a source package has no recipes")


def run(recipe: str, monkeypatch: pytest.MonkeyPatch, *arguments: object) -> None:
    monkeypatch.setattr(sys, "argv", [recipe, *map(str, arguments)])
    monkeypatch.syspath_prepend(str(RECIPES))  # as for a script
    runpy.run_path(str(RECIPES / recipe), run_name="__main__")


def emptied(page: Path, marks: tuple[str, ...]) -> str:
    """The page as it was before a recipe wrote into it."""
    text = page.read_text("utf-8")
    for mark in marks:
        begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{end}{rest.split(end)[1]}"
    return text


def test_the_chart_and_tables_of_layers_are_those_of_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = ROOT / "docs/explanation/what-each-layer-knows.md"
    page = tmp_path / "page.md"
    page.write_text(emptied(committed, ("layers", "kin")), "utf-8")
    chart = tmp_path / "chart.svg"
    run(
        "layer-chart.py",
        monkeypatch,
        *("--results", ROOT / "results"),
        *("--out", chart),
        *("--page", page),
    )
    assert page.read_text("utf-8") == committed.read_text("utf-8")
    assert chart.read_text("utf-8") == (ROOT / "docs/img/layers-know.svg").read_text("utf-8")
    assert "english-original, layer 2: 67.5" in chart.read_text("utf-8")


def test_the_tables_of_encoders_are_those_of_the_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = ROOT / "docs/explanation/static-or-contextual.md"
    page = tmp_path / "page.md"
    page.write_text(emptied(committed, ("known", "kin", "speed")), "utf-8")
    run("minilm-table.py", monkeypatch, *("--results", ROOT / "results"), *("--page", page))
    assert page.read_text("utf-8") == committed.read_text("utf-8")


def test_a_page_without_marks_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing here", "utf-8")
    with pytest.raises(SystemExit, match="known: begin"):
        run("minilm-table.py", monkeypatch, *("--results", ROOT / "results"), *("--page", page))


@pytest.fixture(scope="module")
def minilm() -> dict[str, Any]:
    """The names of the recipe; it imports the encoder only where it is used."""
    return runpy.run_path(str(RECIPES / "minilm.py"), run_name="recipe")


def test_a_word_is_the_mean_of_its_pieces(minilm: dict[str, Any]) -> None:
    pieces = torch.arange(2 * 5 * 3, dtype=torch.float32).reshape(2, 5, 3)
    # [CLS], two pieces of word 0, one of word 2, [SEP]; word 1 was dropped by the tokenizer
    means, none = minilm["word_means"](pieces, [None, 0, 0, 2, None], 3)
    np.testing.assert_array_equal(means[:, 0], pieces[:, 1:3].mean(dim=1).numpy())
    np.testing.assert_array_equal(means[:, 1], np.zeros((2, 3)))
    np.testing.assert_array_equal(means[:, 2], pieces[:, 3].numpy())
    assert none == 1


def test_padding_after_a_sentence_is_no_word(minilm: dict[str, Any]) -> None:
    pieces = torch.ones(1, 6, 2)
    pieces[:, 3:] = 100
    means, none = minilm["word_means"](pieces, [None, 0, None], 1)
    assert means.tolist() == [[[1.0, 1.0]]]
    assert none == 0


def test_a_static_word_that_is_not_there_is_zero(minilm: dict[str, Any]) -> None:
    vectors = np.array([[1, 2], [3, 4]], dtype=np.float32)
    found = minilm["lookup"]({"b": 1}.get, vectors, ["a", "b"])
    assert found.tolist() == [[0, 0], [3, 4]]
