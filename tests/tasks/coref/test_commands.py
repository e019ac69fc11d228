"""Coreference: complete and interrupted runs, and the commands."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import torch
from safetensors.torch import load_file

from elmokit.tasks.data import load_data
from elmokit.tasks.documents import DataIssues, read_columns
from elmokit.tasks.loop import train
from elmokit.text.lines import Line
from tests.conftest import TINY_MODEL
from tests.tasks.coref.conftest import SMALL, TASK, settings
from tests.tasks.test_commands import elmo as command
from tests.tasks.test_commands import error


def test_interrupted_run_resumes_with_identical_results(
    files: tuple[str, str], tmp_path: Path
) -> None:
    config = settings("elmo.place=none", "model.sentences=2", "train.epochs=2", "train.share=0.2")
    data = load_data(TASK, config, *files)
    train(TASK, config, data, tmp_path / "whole")

    def interrupt(_: str, done: int, __: int) -> None:
        if done == 5:
            os.kill(os.getpid(), signal.SIGINT)

    out = tmp_path / "cut"
    assert train(TASK, config, data, out, progress=interrupt).interrupted
    assert not train(TASK, config, data, out, resume=True).interrupted
    one, other = (load_file(tmp_path / name / "weights.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(one[key], other[key]) for key in one)


def test_commands_from_training_to_prediction(files: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    changes = [part for setting in SMALL for part in ("--set", setting)]
    trained = command(
        *("task", "coref", "train", *files, files[1], "-o", out, "--model", TINY_MODEL, "--json"),
        *("--cache-dir", tmp_path / "cache", "--device", "cpu", *changes),
        *("--set", "train.epochs=6"),
    )
    assert trained.exit_code == 0, trained.stderr
    assert "mix at the input: s_0 = " in trained.stderr
    result = json.loads(trained.stdout)
    assert result["test"]["conll"] > 80
    found = command("task", "coref", "evaluate", out, files[1], "--json", "--device", "cpu")
    assert json.loads(found.stdout)["conll"] == result["test"]["conll"]
    result = command("task", "coref", "evaluate", out, Path(files[1]).parent, "--device", "cpu")
    assert "50 examples: conll" in result.stdout
    assert "measure ceafe: f1" in result.stdout

    text = "Ann met Bob. She saw him.\n\nTom left.\n"
    done = command("task", "coref", "predict", out, "-", "--device", "cpu", given=text)
    assert done.exit_code == 0, done.stderr
    lines = [Line("x", i, line) for i, line in enumerate(done.stdout.splitlines(), 1)]
    again = list(read_columns(lines, DataIssues(), labeled=True))
    assert [d.sentences[0] for d in again] == [("Ann", "met", "Bob", "."), ("Tom", "left", ".")]
    done = command("task", "coref", "predict", out, "-", "--json", "--device", "cpu", given=text)
    assert [len(json.loads(line)["sentences"]) for line in done.stdout.splitlines()] == [2, 1]
    done = command(
        *("task", "coref", "predict", out, files[1], "--input", "conll", "--device", "cpu"),
    )
    assert done.stdout.count("#begin document (dev.conll") == 10
    bad = tmp_path / "bad.conll"
    bad.write_text("a\t(1\nb\t-\n")
    assert "bad.conll, line 1" in error("task", "coref", "evaluate", out, bad)
    message = error("task", "coref", "predict", out, tmp_path, "--input", "conll")
    assert "is a directory" in message
    message = error("task", "ner", "train", tmp_path, tmp_path, "-o", "x", "--static", "none")
    assert "is a directory" in message
