"""The tables of docs/results.md are created from finished runs and from published results."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from elmokit.tasks.classify import LabelPrediction
from elmokit.tasks.registry import load_task
from elmokit.tasks.sst5 import Review
from tests.recipes.conftest import ROOT, RunRecipe

pytestmark = pytest.mark.slow

TABLES = ("table1", "trials", "tuned", "table2", "table3", "second-version", "models", "finetune")
TABLES += ("static", "figure1", "figure2")
EXAMPLES = [Review(("a",), "1"), Review(("b",), "4")]


def write_run(folder: Path, labels: str, epochs: int = 4) -> None:
    """Write the files that `elmo task sst5 train` and `evaluate` leave in a run directory."""
    sst5 = load_task("sst5")
    guesses = [LabelPrediction(label, {label: 1.0}) for label in labels]
    scores = sst5.score(EXAMPLES, guesses)
    folder.mkdir(parents=True)
    lines = [
        sst5.format_prediction(e, g, as_json=True) for e, g in zip(EXAMPLES, guesses, strict=True)
    ]
    (folder / "test.jsonl").write_text("".join(f"{line}\n" for line in lines))
    results = {
        "epochs": epochs,
        "best_epoch": 2,
        "seconds": 9.0,
        "mixes": {"input": {"s": [0.2, 0.5, 0.3], "gamma": 1.5}},
        "dev": scores,
        "test": scores,
    }
    config = {"results": results, "config": {"train": {"epochs": 10}}}
    (folder / "config.json").write_text(json.dumps(config))
    curve = [{"dev": {"accuracy": score}} for score in (10.0, 20.0, 15.0, 18.0)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in curve))


def test_tables_are_created_from_runs(tmp_path: Path, run_recipe: RunRecipe) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plot' is not installed")
    runs, docs, results = tmp_path / "runs", tmp_path / "docs", tmp_path / "results"
    for seed in (0, 1):
        write_run(runs / f"sst5_none_seed-{seed}", "13")
    for seed, labels in enumerate(("13", "14")):
        write_run(runs / f"sst5_input_seed-{seed}", labels, epochs=11)
    docs.mkdir()
    page = "".join(f"# {name}\n<!-- {name} -->\nold\n<!-- /{name} -->\n" for name in TABLES)
    (docs / "results.md").write_text(page)
    arguments = ["tasks/tables.py", runs, "--docs", docs, "--results", results]
    run_recipe(*arguments)
    text = (docs / "results.md").read_text()
    assert "old" not in text
    row = next(line for line in text.splitlines() if line.startswith("| SST-5, accuracy |"))
    assert "| 50.00 ± 0.00 | 75.00 ± 35.36* | +25.00" in row
    assert "**50.0%** | 51.4 | 54.7 | 6.8% |" in row
    made = json.loads((results / "table1.json").read_text())["tasks"]["sst5"]
    assert made["difference"]["difference"] == 25.0
    run_recipe(*arguments)
    assert (docs / "results.md").read_text() == text


def test_published_tables_are_created_from_published_results(
    tmp_path: Path, run_recipe: RunRecipe
) -> None:
    pytest.importorskip("matplotlib", reason="the extra 'plot' is not installed")
    results, docs = tmp_path / "results", tmp_path / "docs"
    shutil.copytree(ROOT / "results" / "tasks", results)
    docs.mkdir()
    shutil.copy(ROOT / "docs" / "results.md", docs)
    run_recipe("tasks/tables.py", tmp_path / "no-runs", "--docs", docs, "--results", results)
    assert (docs / "results.md").read_text() == (ROOT / "docs" / "results.md").read_text()
    for name in TABLES:
        made, there = (
            json.loads((folder / f"{name}.json").read_text())
            for folder in (results, ROOT / "results" / "tasks")
        )
        assert {**made, "date": there["date"]} == there
