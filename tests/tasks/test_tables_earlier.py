"""Tables that remember: runs that were published count beside those in a folder."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.tasks.table_runs import EXAMPLES, MACHINE, RECIPE, TABLES, guess, write_run

pytestmark = pytest.mark.skipif(not RECIPE.exists(), reason="a source package has no recipes")


@pytest.fixture
def published(recipe: Any, tmp_path: Path, monkeypatch: Any) -> Any:
    """Tables of some runs, and how they are made of another folder."""
    docs, results = tmp_path / "docs", tmp_path / "results"
    docs.mkdir()
    page = "".join(f"# {name}\n<!-- {name} -->\n<!-- /{name} -->\n" for name in TABLES)
    (docs / "results.md").write_text(page)

    def make(runs: Path) -> dict[str, Any]:
        given = ["tables.py", str(runs), "--docs", str(docs), "--results", str(results)]
        monkeypatch.setattr(sys, "argv", given)
        recipe.tables.main()
        made = {name: json.loads((results / f"{name}.json").read_text()) for name in TABLES}
        for values in made.values():
            del values["date"]
        texts = {path.name: path.read_text() for path in docs.rglob("*.*")}
        return {**made, **texts}

    runs = tmp_path / "runs"
    some, all_right = EXAMPLES["sst5"][1], [guess("1"), guess("4")]
    for seed in (0, 1):
        write_run(runs / f"sst5_none_seed-{seed}", "sst5", some, "accuracy")
    write_run(runs / "sst5_input_seed-0", "sst5", some, "accuracy")
    write_run(runs / "sst5_input_seed-1", "sst5", all_right, "accuracy")
    write_run(runs / "sst5_input_english-sst5_seed-0", "sst5", all_right, "accuracy")
    # Scores that no four digits hold; one cut while it rose, which nothing but a star is left of.
    for cell in ("none", "input", "none_share-0.1", "input_share-0.3"):
        write_run(runs / f"ner_{cell}_seed-0", "ner", EXAMPLES["ner"][1], "f1")
    rising = runs / "ner_input_english-original_seed-0"
    write_run(rising, "ner", EXAMPLES["ner"][1], "f1", epochs=11, best_epoch=11)
    summary = {"perplexity": {"before": {"mean": 101.25}, "after": {"mean": 47.5}}}
    (runs / recipe.finetune.SUMMARY.format(task="ner")).write_text(json.dumps(summary))
    (runs / "machines.jsonl").write_text(json.dumps(MACHINE) + "\n")
    return SimpleNamespace(first=make(runs), make=make, results=results, later=tmp_path / "later")


def test_tables_are_made_again_without_the_runs(published: Any) -> None:
    first = published.first
    shown = first["results.md"]
    assert "| SST-5, accuracy | 50.00 ± 0.00 | 75.00 ± 35.36 | +25.00" in shown
    assert "| NER | 101.2 | 47.5 |" in shown
    tuned = "| SST-5, accuracy, test | 50.00 ± 0.00 | 75.00 ± 35.36 | 100.00 (1 run) | +25.00 ("
    row = next(line for line in shown.splitlines() if line.startswith(tuned))
    assert row.endswith(" to +50.00) | 50.0% | 100.0% | 6.8% |")
    assert "is best (20.00) in epoch 2" in shown
    assert "| NER, F1, test | 33.33 (1 run) | 33.33 (1 run)* |" in shown
    assert first["figure1"]["tasks"]["ner"]["shares"]["0.1"]["baseline"]["runs"]
    assert first["figure1"]["settings"]["ner"]["little"]["share"] == 0.1
    run = first["table1"]["tasks"]["sst5"]["elmo"]["runs"][1]
    assert run["made"] == "2026-01-02, A GPU"
    seeds = first["table1"]["tasks"]["sst5"]["difference"]["seeds"]
    assert seeds == {"baseline": [0, 1], "elmo": [0, 1]}
    published.later.mkdir()
    again = published.make(published.later)
    assert again == first
    assert published.make(published.later) == first


def test_new_runs_count_beside_published_ones(published: Any) -> None:
    later = published.later
    before = published.first["table1"]["tasks"]["sst5"]["difference"]
    write_run(later / "sst5_input_seed-2", "sst5", EXAMPLES["sst5"][1], "accuracy")
    machine = {**MACHINE, "date": "2026-03-04"}
    lines = (MACHINE, machine, machine)
    (later / "machines.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in lines))
    made = published.make(later)
    assert made["table1"]["machines"] == [MACHINE, machine]
    found = made["table1"]["tasks"]["sst5"]
    assert [run["seed"] for run in found["elmo"]["runs"]] == [0, 1, 2]
    assert found["elmo"]["runs"][2]["made"] == "2026-01-02, A GPU; 2026-03-04, A GPU"
    assert found["elmo"]["test"] == pytest.approx(66.6667)
    # The baseline has no predictions: the interval stays, the gain is that of the means shown.
    kept = found["difference"]
    assert [kept[end] for end in ("low", "high")] == [before[end] for end in ("low", "high")]
    assert kept["seeds"] == before["seeds"]
    assert kept["difference"] == pytest.approx(16.6667, abs=1e-3)
    assert kept["difference_of_seeds"] == 25.0
    assert found["relative_error_reduction"] == 33.33
    assert made["figure2"]["tasks"]["sst5"]["input"]["input"]["gamma"] == 1.5
    assert (
        "(without ELMo seed 0 and 1, with it seed 0 and 1); they gain +25.00." in made["results.md"]
    )
    # Now both sides have a new run, but the published interval rests on two of each.
    write_run(later / "sst5_none_seed-2", "sst5", EXAMPLES["sst5"][1], "accuracy")
    made = published.make(later)
    still = made["table1"]["tasks"]["sst5"]["difference"]
    assert (still["seeds"], still["difference_of_seeds"]) == (before["seeds"], 25.0)
    assert still["difference"] == pytest.approx(16.6667, abs=1e-3)
    # With as many new ones it is theirs.
    for place in ("none", "input"):
        write_run(later / f"sst5_{place}_seed-1", "sst5", EXAMPLES["sst5"][1], "accuracy")
    made = published.make(later)
    new = made["table1"]["tasks"]["sst5"]["difference"]
    assert new["seeds"] == {"baseline": [1, 2], "elmo": [1, 2]}
    assert (new["low"], new["high"]) == (0.0, 0.0)
    assert published.make(later.with_name("empty")) == made


def test_a_gain_without_any_predictions_has_no_interval(published: Any) -> None:
    for path in published.results.glob("*.json"):
        values = json.loads(path.read_text())
        for told in values["tasks"].values():
            told.pop("difference", None)
        path.write_text(json.dumps(values))
    made = published.make(published.later)
    found = made["table1"]["tasks"]["sst5"]["difference"]
    empty = {"baseline": [], "elmo": []}
    assert found == {"base": 50.0, "other": 75.0, "difference": 25.0, "seeds": empty}
    assert "| +25.00 | **50.0%** |" in made["results.md"]
    assert "SST-5, accuracy: no interval" in made["results.md"]


def test_a_run_takes_the_place_of_a_published_one_unless_it_was_cut_rising(published: Any) -> None:
    right = [guess("1"), guess("4")]
    folder = published.later / "sst5_none_seed-0"
    write_run(folder, "sst5", right, "accuracy", epochs=11, best_epoch=11)
    assert published.make(published.later) == published.first
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    write_run(folder, "sst5", right, "accuracy")
    made = published.make(published.later)["table1"]["tasks"]["sst5"]["baseline"]
    assert [run["test"] for run in made["runs"]] == [100.0, 50.0]


def test_published_runs_with_other_settings_do_not_count(
    recipe: Any, published: Any, monkeypatch: Any, capsys: Any
) -> None:
    little = ("train.batch_size=9",)
    monkeypatch.setitem(recipe.runs.LITTLE_SETTINGS, "ner", little)
    made = published.make(published.later)
    told = capsys.readouterr().out
    assert "ner: 1 published runs do not count: they were made with train.batch_size=8, " in told
    assert "runs.py now has train.batch_size=9. Make them again" in told
    shares = made["figure1"]["tasks"]["ner"]["shares"]
    assert not shares["0.1"]["baseline"]["runs"]
    assert shares["0.3"]["elmo"]["runs"]
    assert made["table1"]["tasks"] == published.first["table1"]["tasks"]
    assert made["figure1"]["settings"]["ner"]["little"]["set"] == list(little)
    preset, settings = recipe.runs.SETTINGS["ner"]
    monkeypatch.setitem(recipe.runs.SETTINGS, "ner", (preset, (*settings, "train.clip=1")))
    made = published.make(published.later)
    told = capsys.readouterr().out
    assert "ner: 4 published runs do not count: they were made with no such setting; " in told
    assert "runs.py now has train.clip=1." in told
    assert not made["table1"]["tasks"]["ner"]["baseline"]["runs"]
    assert made["figure1"]["tasks"]["ner"]["dev_by_epoch"] == {"baseline": [], "elmo": []}
    assert made["table1"]["tasks"]["sst5"] == published.first["table1"]["tasks"]["sst5"]


def test_results_that_do_not_belong_together_are_told(recipe: Any, published: Any) -> None:
    path = published.results / "static.json"
    values = json.loads(path.read_text())
    values["tasks"]["sst5"]["GloVe"]["runs"][1]["test"] = 51.5
    path.write_text(json.dumps(values))
    with pytest.raises(recipe.earlier.DataError, match=r"sst5_none with seed 1.*one commit"):
        published.make(published.later)


def test_published_runs_are_not_made_again(
    recipe: Any, published: Any, monkeypatch: Any, capsys: Any
) -> None:
    write_run(published.later / "sst5_none_seed-2", "sst5", EXAMPLES["sst5"][1], "accuracy")
    given = ["run.py", "data", "-o", str(published.later), "--results", str(published.results)]
    given += ["--model", "english-original=x", "--list", "--only"]

    def listed(*more: str) -> dict[str, str]:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", [*given, *more])
        recipe.run.main()
        first, *lines = capsys.readouterr().out.splitlines()
        states = dict(reversed(line.split()) for line in lines)
        counts = [list(states.values()).count(state) for state in ("done", "published")]
        told = f"{len(lines)} runs, {counts[0]} of them finished, {counts[1]} published"
        assert first == told
        return states

    states = listed("^sst5_none_seed|^ner_input_english-original")
    assert states == {
        "sst5_none_seed-0": "published",
        "sst5_none_seed-1": "published",
        "sst5_none_seed-2": "done",
        # It was cut while it rose.
        "ner_input_english-original_seed-0": "left",
        "ner_input_english-original_seed-1": "left",
        "ner_input_english-original_seed-2": "left",
    }
    for more in (["--again"], ["--set", "train.epochs=2"]):
        states = listed("^sst5_none_seed", *more)
        assert list(states.values()) == ["left", "left", "done"]


def test_the_tables_that_are_published_are_made_of_themselves(
    recipe: Any, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    root = RECIPE.parents[1]
    results, docs = tmp_path / "results", tmp_path / "docs"
    shutil.copytree(root / "results" / "tasks", results)
    docs.mkdir()
    shutil.copy(root / "docs" / "results.md", docs)
    given = ["tables.py", str(tmp_path / "no-runs"), "--docs", str(docs)]
    monkeypatch.setattr(sys, "argv", [*given, "--results", str(results)])
    recipe.tables.main()
    assert "do not count" not in capsys.readouterr().out
    assert (docs / "results.md").read_text() == (root / "docs" / "results.md").read_text()
    for name in TABLES:
        made, there = (
            json.loads((folder / f"{name}.json").read_text())
            for folder in (results, root / "results" / "tasks")
        )
        assert {**made, "date": there["date"]} == there
