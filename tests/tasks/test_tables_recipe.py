"""The recipe of the tables: runs that are named once, counts that give the score, a page."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from elmokit.tasks.classify import Guess
from elmokit.tasks.config import with_settings
from elmokit.tasks.coref import Resolved
from elmokit.tasks.documents import Document, Mention
from elmokit.tasks.metrics.spans import Span
from elmokit.tasks.ner import Sentence
from elmokit.tasks.propbank import Frame
from elmokit.tasks.propbank import Sentence as Clause
from elmokit.tasks.registry import load_task
from elmokit.tasks.snli import Pair
from elmokit.tasks.squad import Answer
from elmokit.tasks.sst5 import Review

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "tasks"
NAMES = (
    "runs",
    "counts",
    "finished",
    "earlier",
    "results",
    "gains",
    "published",
    "figures",
    "finetune",
    "tables",
    "prepare",
    "run",
)
TABLES = ("table1", "table2", "table3", "models", "finetune", "static", "figure1", "figure2")
MACHINE = {"date": "2026-01-02", "device": "A GPU", "cores": 4}

pytestmark = pytest.mark.skipif(not RECIPE.exists(), reason="a source package has no recipes")


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The files of the recipe, as modules; they find each other as scripts do."""
    pytest.importorskip("matplotlib")
    monkeypatch.syspath_prepend(str(RECIPE))
    modules = {name: __import__(name) for name in NAMES}
    yield SimpleNamespace(**modules)
    for name in NAMES:
        sys.modules.pop(name, None)


def guess(label: str) -> Guess:
    return Guess(label, {label: 1.0})


def span(start: int, end: int, kind: str) -> Span:
    return Span(start, end, kind)


DOCUMENT = Document(
    (("Ann", "saw", "her", "dog"), ("She", "called", "it")),
    ((Mention(0, 1), Mention(2, 3), Mention(4, 5)), (Mention(2, 4), Mention(6, 7))),
    "d",
)
FOUND = [[Mention(0, 1), Mention(4, 5)], [Mention(2, 4), Mention(6, 7), Mention(2, 3)]]
# Of each task, examples and predictions of which some are wrong.
EXAMPLES: dict[str, tuple[list[Any], list[Any]]] = {
    "ner": (
        [
            Sentence(("a", "b", "c"), ("I-X", "I-X", "O")),
            Sentence(("d",), ("B-Y",)),
            Sentence(("e", "f"), ("B-Y", "B-X")),
        ],
        [["B-X", "I-X", "O"], ["O"], ["B-Y", "I-Y"]],
    ),
    "sst5": ([Review(("a",), "1"), Review(("b",), "4")], [guess("1"), guess("3")]),
    "snli": (
        [Pair(("a",), ("b",), "neutral"), Pair(("c",), ("d",), "entailment")],
        [guess("neutral"), guess("neutral")],
    ),
    "squad": (
        [
            SimpleNamespace(id="1", text="who?", answers=("the old King", "king")),
            SimpleNamespace(id="2", text="when?", answers=("in 1066",)),
        ],
        [Answer("old king", 0, 8, 1.0), Answer("1066 or so", 0, 10, 1.0)],
    ),
    "srl": (
        [
            Clause(
                ("Ann", "gave", "it", "up"),
                frames=(Frame(1, (span(0, 1, "A0"), span(1, 2, "V"), span(2, 3, "A1"))),),
            ),
            Clause(("Go",), frames=(Frame(0, (span(0, 1, "V"),)),)),
        ],
        [
            [Frame(1, (span(0, 1, "A0"), span(1, 2, "V"), span(2, 4, "A1")))],
            [Frame(0, (span(0, 1, "V"),))],
        ],
    ),
    "coref": ([DOCUMENT, DOCUMENT], [Resolved(FOUND, False), Resolved(FOUND[:1], False)]),
}


def write_run(
    folder: Path, task: str, predictions: list[Any], metric: str, **results: Any
) -> float:
    """Leave what a run leaves."""
    examples, _ = EXAMPLES[task]
    shown = load_task(task)
    scores = shown.score(examples, predictions)
    folder.mkdir(parents=True)
    lines = [shown.show(e, p, as_json=True) for e, p in zip(examples, predictions, strict=True)]
    (folder / "test.jsonl").write_text("".join(f"{line}\n" for line in lines))
    mixes = {"input": {"s": [0.2, 0.5, 0.3], "gamma": 1.5}}
    values = {"epochs": 4, "best_epoch": 2, "seconds": 9.0, "mixes": mixes, **results}
    values |= {"dev": scores, "test": scores}
    config = {"results": values, "config": {"train": {"epochs": 10}}}
    (folder / "config.json").write_text(json.dumps(config))
    curve = [{"dev": {metric: score}} for score in (10.0, 20.0, 15.0, 18.0)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in curve))
    return float(scores[metric])


@pytest.mark.parametrize("task", EXAMPLES)
def test_the_counts_of_examples_give_the_score_of_the_task(
    recipe: Any, tmp_path: Path, task: str
) -> None:
    metric = recipe.counts.METRIC[task]
    assert metric == load_task(task).metric
    score = write_run(tmp_path / "run", task, EXAMPLES[task][1], metric)
    assert 0 < score < 100
    rows, figure = recipe.counts.counts_of(task, tmp_path / "run" / "test.jsonl", score)
    assert len(rows) == len(EXAMPLES[task][0])
    assert figure(rows.sum(axis=0)) == pytest.approx(score)
    with pytest.raises(Exception, match="not its own"):
        recipe.counts.counts_of(task, tmp_path / "run" / "test.jsonl", score + 1)


def test_every_run_is_there_once_under_its_own_name(recipe: Any) -> None:
    found = recipe.runs.all_runs()
    assert len({run.name for run in found}) == len(found)
    first = [run.name for run in found][:2]
    assert first == ["squad_none_seed-0", "squad_both_seed-0"]
    tables = list(found.values())
    begun = list(dict.fromkeys(tables))
    others = ["table2", "table3", "figure1", "models", "finetune", "static"]
    assert begun == ["table1", *others]
    assert tables[:32] == ["table1"] * 32
    assert tables[-4:] == ["table1"] * 4
    assert {run.cell.task for run in list(found)[-4:]} == set(recipe.runs.LONGEST)
    # Every other table is there once before any of them has a second seed.
    later = [run.seed for run, table in found.items() if table != "table1"]
    assert later == sorted(later)
    for cell in {run.cell for run in found}:
        preset, settings = recipe.runs.settings_of(cell)
        known = load_task(cell.task).presets
        with_settings(known[preset], settings)
        if cell.task in recipe.runs.PENALTY:
            assert known[preset].elmo.penalty == recipe.runs.PENALTY[cell.task]


def test_layers_are_computed_before_the_first_run_that_needs_them(
    recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["run.py", str(tmp_path), "-o", str(tmp_path / "o"), "--table", "table1", "table2"]
    monkeypatch.setattr(sys, "argv", [*given, "--only", "^ner", "--set", "train.epochs=2"])
    args = recipe.run.arguments()
    runs = [run for run in recipe.runs.all_runs() if recipe.run.chosen(run, args)]
    assert len(runs) == 15
    jobs = recipe.run.jobs_of(runs, args)
    layers = [job for job in jobs if job.name.startswith("layers")]
    assert [job.name for job in layers] == ["layers of ner english 1.0"]
    needing = [job for job in jobs if job.needs]
    assert {job.needs for job in needing} == {layers[0].name}
    assert len(needing) == 12
    assert jobs.index(layers[0]) < jobs.index(needing[0])
    command = " ".join(next(j for j in jobs if "lambda-1_" in j.name).command)
    assert "--lambda 1.0" in command
    assert command.endswith("--set train.epochs=2")


def test_a_page_is_made_of_what_was_run(recipe: Any, tmp_path: Path, monkeypatch: Any) -> None:
    runs, docs = tmp_path / "runs", tmp_path / "docs"
    right, wrong = (EXAMPLES["sst5"][1], [guess("1"), guess("4")])
    for seed, predictions in enumerate((right, right)):
        write_run(runs / f"sst5_none_seed-{seed}", "sst5", predictions, "accuracy")
    for seed, predictions in enumerate((right, wrong)):
        folder = runs / f"sst5_input_seed-{seed}"
        write_run(folder, "sst5", predictions, "accuracy", epochs=11)
    docs.mkdir()
    summary = {"perplexity": {"before": {"mean": 101.25}, "after": {"mean": 47.5}}}
    (runs / recipe.finetune.SUMMARY.format(task="ner")).write_text(json.dumps(summary))
    page = "".join(f"# {name}\n<!-- {name} -->\nold\n<!-- /{name} -->\n" for name in TABLES)
    (docs / "results.md").write_text(page)
    results = tmp_path / "results"
    given = ["tables.py", str(runs), "--docs", str(docs), "--results", str(results)]
    monkeypatch.setattr(sys, "argv", given)
    recipe.tables.main()
    text = (docs / "results.md").read_text()
    assert "old" not in text
    row = next(line for line in text.splitlines() if line.startswith("| SST-5, accuracy |"))
    assert "| 50.00 ± 0.00 | 75.00 ± 35.36* | +25.00" in row
    assert "**50.0%** | 51.4 | 54.7 | 6.8% |" in row
    assert "| NER | 101.2 | 47.5 | 103.2 | 46.3 |" in text
    assert "| SST-5 | not run | not run | 131.5 | 78.6 |" in text
    assert "| NER, F1 | not run | not run | not run |  | 90.15 |" in text
    assert "| sst5 | input | input | 0.20 | 0.50 | 0.30 | 1.50 |" in text
    made = json.loads((results / "table1.json").read_text())["tasks"]["sst5"]
    assert made["difference"]["difference"] == 25.0
    assert [run["cut"] for run in made["elmo"]["runs"]] == [True, True]
    assert not json.loads((results / "table1.json").read_text())["tasks"]["ner"]["elmo"]["runs"]
    for name in ("sample-efficiency.svg", "layer-weights.svg"):
        assert (docs / "figures" / name).read_text().startswith("<?xml")
    # Made again, it is the same.
    recipe.tables.main()
    assert (docs / "results.md").read_text() == text


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


def test_data_are_laid_out_and_what_is_missing_is_told(
    recipe: Any, tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    tasks, out = tmp_path / "tasks", tmp_path / "out"
    (tasks / "litbank" / "conll").mkdir(parents=True)
    for number in range(10):
        (tasks / "litbank" / "conll" / f"{number}_x.conll").write_text("x")
    snli = tasks / "snli"
    (snli / "counterfactual" / "all_combined").mkdir(parents=True)
    (snli / "dev.txt").write_text("".join(f"a\tb{n}\t0\n" for n in range(1002)))
    (snli / "test.txt").write_text("a\tb\t1\n")
    extra = snli / "counterfactual" / "all_combined" / "train.tsv"
    extra.write_text("gold_label\tx\ny\tz\n")
    (tasks / "squad").mkdir()
    for name, titles in (
        ("squad_du_test-v1.1.json", [f"t{n:02}" for n in range(20)]),
        ("extra_from_train.json", ["extra"]),
        ("xquad.en.json", ["test"]),
        ("extra_from_dev.json", ["more"]),
    ):
        data = [{"title": title, "paragraphs": []} for title in titles]
        (tasks / "squad" / name).write_text(json.dumps({"data": data}))
    monkeypatch.setattr(sys, "argv", ["prepare.py", str(tasks), "-o", str(out)])
    recipe.prepare.main()
    told = capsys.readouterr().out
    assert "ner: left out, there is no " in told
    assert not (out / "ner").exists()
    counted = [len(list((out / "coref" / part).iterdir())) for part in ("train", "dev", "test")]
    assert counted == [8, 1, 1]
    train, dev = ((out / "snli" / f"{part}.txt").read_text() for part in ("train", "dev"))
    assert train == "a\tb0\t0\na\tb1\t0\ngold_label\tx\ny\tz\n"
    assert dev.splitlines()[0] == "a\tb2\t0"
    assert len(dev.splitlines()) == 1000
    titles = {
        part: [a["title"] for a in json.loads((out / "squad" / f"{part}.json").read_text())["data"]]
        for part in ("train", "dev", "test")
    }
    assert titles["dev"] == ["t18", "t19"]
    assert len(titles["train"]) == 19
    assert titles["test"] == ["test", "more"]


def test_jobs_run_in_order_within_a_bound_and_are_stopped_in_time(
    recipe: Any, tmp_path: Path, capsys: Any
) -> None:
    def job(name: str, code: str, needs: str | None = None) -> Any:
        return recipe.run.Job(name, [sys.executable, "-c", code], needs)

    note = f"open({str(tmp_path / 'order')!r}, 'a').write"
    jobs = [
        job("first", f"{note}('1')"),
        job("second", f"{note}('2')", "first"),
        job("bad", "raise SystemExit(3)"),
        # Tells its parent to stop, as Ctrl-C would, and would take long itself.
        job("long", "import os, time; os.kill(os.getppid(), 15); time.sleep(600)"),
        job("late", f"{note}('3')"),
    ]
    args = SimpleNamespace(output=tmp_path, processes=1)
    recipe.run.Pool(args, {}).work(jobs, time.monotonic())  # no time: nothing is begun
    assert all(job.process is None for job in jobs)
    with pytest.raises(SystemExit, match="130"):
        recipe.run.Pool(args, {}).work(jobs, time.monotonic() + 300)
    assert (tmp_path / "order").read_text() == "12"
    told = capsys.readouterr().out
    assert "bad: failed with 3" in told
    assert "FAILED bad" in told
    assert "long: stopped" in told
    assert jobs[3].process.poll() is not None
    assert jobs[4].process is None
