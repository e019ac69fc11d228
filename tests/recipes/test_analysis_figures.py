"""The recipe for the figures of the docs runs with any model, from data to page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.probes.test_wic import item, write
from tests.recipes.conftest import RunRecipe

pytestmark = pytest.mark.slow

WORDS = "play bank read bass light right spring match plant state the walk walked".split()


def test_recipe_writes_figures_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_recipe: RunRecipe
) -> None:
    write(tmp_path, [item(n) for n in range(8)])
    text = "The [old] bank. | A play_on *words*.\n\nThey play well. It was a match.\n" * 3
    (tmp_path / "text.txt").write_text(text)
    static = "\n".join(f"{word} {n} 1" for n, word in enumerate(WORDS))
    (tmp_path / "static.txt").write_text(static)
    monkeypatch.chdir(tmp_path)
    arguments = f"--text {tmp_path}/text.txt --wic x.data --static static.txt --device cpu"
    run_recipe("analysis-figures.py", *arguments.split())
    for part in ("neighbors", "wic", "morphology"):
        written = (tmp_path / "results" / "analysis" / f"{part}.json").read_text()
        values = json.loads(written)
        assert {"command", "model", "machine", "date", "seed", "state"} <= set(values)
        assert str(tmp_path) not in written
    found = json.loads((tmp_path / "results" / "analysis" / "neighbors.json").read_text())
    assert found["in_both_lists"]["any word"]["layer 0"] == 1.0
    page = (tmp_path / "docs" / "analysis.md").read_text()
    assert "**play**, static.txt: " in page
    assert "| layer 2 |" in page
    assert "Nearest uses of play" in page
    assert "| made-up | 50 |" in page
    assert "\\|" in page  # a bar in the text does not end a table cell
    assert "None" not in page
