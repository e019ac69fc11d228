"""The pages and figures of docs/ equal the output of the recipes for results/."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from tests.recipes.conftest import RECIPES, ROOT, RunRecipe


def emptied(page: Path, marks: tuple[str, ...]) -> str:
    """Return the page before a recipe wrote to it."""
    text = page.read_text("utf-8")
    for mark in marks:
        begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}\n{end}{rest.split(end)[1]}"
    return text


def test_chart_and_tables_of_layers_match_the_results(
    tmp_path: Path, run_recipe: RunRecipe
) -> None:
    committed = ROOT / "docs/explanation/what-each-layer-knows.md"
    page, chart = tmp_path / "page.md", tmp_path / "chart.svg"
    page.write_text(emptied(committed, ("layers", "morphology")), "utf-8")
    results = ROOT / "results"
    run_recipe("layer-chart.py", "--results", results, "--out", chart, "--page", page)
    assert page.read_text("utf-8") == committed.read_text("utf-8")
    assert "Word senses" in chart.read_text("utf-8")


def test_tables_of_encoders_match_the_results(tmp_path: Path, run_recipe: RunRecipe) -> None:
    committed = ROOT / "docs/explanation/static-or-contextual.md"
    page = tmp_path / "page.md"
    page.write_text(emptied(committed, ("known", "morphology", "speed")), "utf-8")
    run_recipe("minilm-table.py", "--results", ROOT / "results", "--page", page)
    assert page.read_text("utf-8") == committed.read_text("utf-8")


@pytest.mark.parametrize(
    ("recipe", "parts"),
    [
        ("probes", ("probes/pos", "probes/wsd")),
        ("analysis-figures", ("analysis/neighbors", "analysis/wic", "analysis/morphology")),
    ],
)
def test_pages_of_probes_match_the_results(
    recipe: str, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(RECIPES))
    made = {
        Path(part).name: json.loads((ROOT / "results" / f"{part}.json").read_text("utf-8"))
        for part in parts
    }
    lines = runpy.run_path(str(RECIPES / f"{recipe}.py"))["page"](made)
    page = ROOT / "docs" / f"{parts[0].split('/')[0]}.md"
    assert page.read_text("utf-8") == "\n".join(lines) + "\n"
