"""The recipe of the tables: runs that are named once, counts that give the score, a page."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from elmokit.tasks.config import with_settings
from elmokit.tasks.registry import load_task
from tests.tasks.table_runs import EXAMPLES, RECIPE, TABLES, guess, write_run

psutil = pytest.importorskip("psutil")

pytestmark = pytest.mark.skipif(not RECIPE.exists(), reason="a source package has no recipes")


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
    others = ["finetune", "table2", "table3", "figure1", "models", "static"]
    assert begun == ["table1", *others]
    assert tables[:36] == ["table1"] * 36
    assert "table1" not in tables[36:]
    assert {run.seed for run in list(found)[36:] if run.cell.task in recipe.runs.LONGEST} == {0}
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


def test_a_bilm_reads_the_tasks_text_before_its_layers_are_computed(
    recipe: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["run.py", str(tmp_path), "-o", str(tmp_path / "o"), "--table", "finetune"]
    given += ["--only", "^(ner|srl)_"]

    def jobs_of(*more: str) -> list[Any]:
        monkeypatch.setattr(sys, "argv", [*given, *more])
        args = recipe.run.arguments()
        runs = [run for run in recipe.runs.all_runs() if recipe.run.chosen(run, args)]
        found: list[Any] = recipe.run.jobs_of(runs, args)
        return found

    jobs = jobs_of()
    tuned, layers, *runs = [job for job in jobs if "english-ner" in job.name]
    assert (tuned.name, tuned.needs) == ("biLM english-ner", None)
    assert tuned.command[1].endswith("finetune.py")
    assert (layers.name, layers.needs) == ("layers of ner english-ner 1.0", tuned.name)
    assert [job.needs for job in runs] == [layers.name] * 3
    model = tmp_path / "o" / ".tuned" / "english-ner"
    for job in (layers, *runs):
        assert job.command[job.command.index("--model") + 1] == str(model)
    # It is made once, or not at all where one is given.
    (tmp_path / "o" / ".tuned" / "english-srl").mkdir(parents=True)
    names = [job.name for job in jobs_of("--model", "english-ner=mine")]
    assert not [name for name in names if name.startswith("biLM")]
    assert "ner_input_english-ner_seed-0" in names


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
    assert "| SRL | not run | not run |  |  |" in text
    row = "| SST-5, accuracy, test | 50.00 ± 0.00 | 75.00 ± 35.36* | not run |  |  |  | 6.8% |"
    assert row in text
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


def ended(pid: int) -> bool:
    """Tell whether a process is no more, or only waits to be collected."""
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_jobs_run_in_order_within_a_bound_and_are_stopped_in_time(
    recipe: Any, tmp_path: Path, capsys: Any
) -> None:
    def job(name: str, code: str, needs: str | None = None) -> Any:
        return recipe.pool.Job(name, [sys.executable, "-c", code], needs)

    note = f"open({str(tmp_path / 'order')!r}, 'a').write"
    jobs = [
        job("first", f"{note}('1')"),
        job("second", f"{note}('2')", "first"),
        job("bad", "raise SystemExit(3)"),
        # Starts a process, tells its parent to stop, as Ctrl-C would, and would take long itself.
        job(
            "long",
            "import os, subprocess, sys, time\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
            f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid))\n"
            "os.kill(os.getppid(), 15); time.sleep(600)",
        ),
        job("late", f"{note}('3')"),
    ]
    recipe.pool.Pool(tmp_path, 1, {}).work(jobs, time.monotonic())  # no time: nothing is begun
    assert all(job.process is None for job in jobs)
    with pytest.raises(SystemExit, match="130"):
        recipe.pool.Pool(tmp_path, 1, {}).work(jobs, time.monotonic() + 300)
    assert (tmp_path / "order").read_text() == "12"
    told = capsys.readouterr().out
    assert "bad: failed with 3" in told
    assert "FAILED bad" in told
    assert "long: stopped" in told
    assert jobs[3].process.poll() is not None
    child = int((tmp_path / "child").read_text())
    for _ in range(100):
        if ended(child):
            break
        time.sleep(0.1)
    assert ended(child)
    assert jobs[4].process is None
