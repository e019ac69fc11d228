"""The recipe of the probes runs with any model, from data to page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import TINY_MODEL
from tests.probes.sense_data import write_index, write_semcor, write_set, write_treebank
from tests.recipes.conftest import RunRecipe

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore:precision='fast' is the same as exact")  # on some CPUs
def test_recipe_writes_figures_and_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run_recipe: RunRecipe
) -> None:
    write_treebank(tmp_path / "ud")
    write_index(tmp_path)
    write_semcor(tmp_path)
    write_set(tmp_path / "sets", "senseval2")
    write_set(tmp_path / "sets", "senseval3")
    (tmp_path / "static.txt").write_text("the 1 0\ncat 0 1\n")
    monkeypatch.chdir(tmp_path)
    shared = f"--model {TINY_MODEL} --static {tmp_path}/static.txt --device cpu"
    for arguments in (
        f"--ud {tmp_path}/ud --precision exact fast --runs 2",
        f"--ud {tmp_path}/ud --tags upos --layer top",  # existing results are kept
        f"--semcor {tmp_path}/semcor.jsonl --wsd sets --wordnet {tmp_path}",
    ):
        run_recipe("probes.py", *shared.split(), *arguments.split())
    for part in ("pos", "wsd"):
        written = (tmp_path / "results" / "probes" / f"{part}.json").read_text()
        for made in json.loads(written)["runs"]:
            assert {"command", "model", "machine", "date", "seed", "state"} <= set(made)
        assert str(tmp_path) not in written
    pos = json.loads((tmp_path / "results" / "probes" / "pos.json").read_text())
    assert [made["tags"] for made in pos["runs"]] == ["xpos", "xpos", "upos"]
    assert [made["precision"] for made in pos["runs"]] == ["exact", "fast", "exact"]
    assert len(pos["fast_less_exact"]) == 5
    page = (tmp_path / "docs" / "probes.md").read_text()
    assert "| layer 1 |" in page
    assert "| 97.3 | 93.3 |" in page
    assert "| 69.0 | 64.7 |" in page
    assert 'Accuracy loss with `precision="fast"`' in page
    assert "nan" not in page
