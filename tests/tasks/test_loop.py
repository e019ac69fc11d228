"""The training loop in complete runs: determinism, kills, early stopping, rejected input."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from elmokit.errors import ConfigError, DataError, NotFiniteError, OutputError, WeightsError
from elmokit.settings import with_settings
from elmokit.tasks import checkpoint
from elmokit.tasks.batches import plan_batches
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.data import Data, load_data, sample_fraction
from elmokit.tasks.loop import train
from elmokit.tasks.ner import Ner, NerConfig, Sentence
from tests.conftest import TINY_MODEL
from tests.process_utils import FileOperation, Pause, elmo, kill_when, start
from tests.process_utils import run as run_child
from tests.tasks.conftest import SMALL, settings, write_columns

TASK = Ner()
# Calls at which the runs below are killed.
SAVE = "elmokit.tasks.checkpoint.Run.save"
WRITE = "elmokit.tasks.checkpoint.write_tensors"
SAVE_RESULT = "elmokit.tasks.saved.save"


@pytest.fixture
def data(files: tuple[str, str]) -> Data[Sentence]:
    return load_data(TASK, settings("elmo.place=none"), *files)


def config(*changes: str) -> TaskConfig:
    return settings("elmo.place=none", *changes)


def weights(run: Path) -> dict[str, bytes]:
    return {k: t.numpy().tobytes() for k, t in load_file(run / "weights.safetensors").items()}


def test_same_seed_gives_the_same_weights_and_another_seed_does_not(
    data: Data[Sentence], tmp_path: Path
) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        torch.rand(3)  # random numbers that the caller draws have no effect
        train(TASK, config("train.epochs=2", f"train.seed={seed}"), data, tmp_path / name)
    assert weights(tmp_path / "a") == weights(tmp_path / "b")
    assert weights(tmp_path / "a") != weights(tmp_path / "c")


def test_random_state_of_the_caller_is_not_changed(data: Data[Sentence], tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(2)
    torch.manual_seed(5)
    train(TASK, config("train.epochs=1"), data, tmp_path / "run")
    assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize("optimizer", ["adam", "adadelta", "sgd"])
def test_interrupted_run_resumes_with_identical_results(
    data: Data[Sentence], tmp_path: Path, optimizer: str
) -> None:
    run = config("train.epochs=3", f"train.optimizer={optimizer}", "train.halve_after=1")
    train(TASK, run, data, tmp_path / "whole")

    def interrupt(_: str, done: int, __: int) -> None:
        if done == 5:
            os.kill(os.getpid(), signal.SIGINT)

    stops = 0
    while train(TASK, run, data, tmp_path / "cut", resume=True, progress=interrupt).interrupted:
        stops += 1
        assert checkpoint.newest(tmp_path / "cut") is not None
    assert stops == 3
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Write data with one batch per epoch."""
    folder = tmp_path_factory.mktemp("few")
    return str(write_columns(folder / "a", 8, 1)), str(write_columns(folder / "b", 4, 2))


def command(files: tuple[str, str], run: Path, cache: Path) -> list[object]:
    words: list[object] = ["task", "ner", "train", *files, "-o", run, "--cache-dir", cache]
    words += ["--model", TINY_MODEL, "--resume", "--device", "cpu", "--elmo", "both"]
    for setting in [*SMALL, "train.epochs=2", "train.checkpoint_every=1"]:
        words += ["--set", setting]
    return words


def test_kill_9_does_not_change_the_result(few: tuple[str, str], tmp_path: Path) -> None:
    for point in (
        Pause(SAVE, call=2, after=True),
        Pause(WRITE, call=2),  # during its first checkpoint
        Pause(SAVE_RESULT),
    ):
        assert kill_when(point, elmo, *command(few, tmp_path / "killed", tmp_path / "cache"))
    for name in ("killed", "whole"):
        done = run_child(elmo, *command(few, tmp_path / name, tmp_path / "cache"))
        assert done.exit_code == 0, done.stderr
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")


def train_in_child(files: tuple[str, str], run: Path) -> None:
    how = config("train.epochs=2", "train.checkpoint_every=1")
    train(TASK, how, load_data(TASK, how, *files), run, resume=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", [pytest.param(1, marks=pytest.mark.ci), 2, 3, 4, 5])
def test_kill_at_any_file_operation_does_not_change_the_result(
    few: tuple[str, str], tmp_path: Path, first: int
) -> None:
    train_in_child(few, tmp_path / "whole")
    for n in range(first, 1000, 5):
        run = tmp_path / str(n)
        if not kill_when(FileOperation(run, n), train_in_child, few, run):
            break
        train_in_child(few, run)
        assert weights(run) == weights(tmp_path / "whole")
        shutil.rmtree(run)
    assert n > 60


def test_concurrent_run_in_the_same_directory_is_rejected(
    few: tuple[str, str], data: Data[Sentence], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with start(train_in_child, few, run, pause=Pause(SAVE)) as child:
        child.wait_for_pause()
        there = sorted(run.iterdir())
        with pytest.raises(OutputError):
            train(TASK, config(), data, run, resume=True)
        assert sorted(run.iterdir()) == there
        child.resume()
        assert child.wait() == 0, child.stderr
    assert not list(run.glob(".*"))


def scored(monkeypatch: pytest.MonkeyPatch, scores: list[float]) -> None:
    """Use these scores for the epochs of the next run, and then repeat the last one."""
    left, real = list(scores), TASK.score

    def score(examples: Any, predictions: Any) -> Any:
        return {**real(examples, predictions), "f1": left.pop(0) if left[1:] else left[0]}

    monkeypatch.setattr(TASK, "score", score)


def test_early_stopping_and_halving(
    data: Data[Sentence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = config("train.epochs=30", "train.patience=3", "train.halve_after=1")
    run = with_settings(run, ["train.learning_rate=1e-9"])
    scored(monkeypatch, [40.0])
    result = train(TASK, run, data, tmp_path / "run")
    assert (result.best_epoch, result.epochs) == (1, 4)
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rates = [json.loads(line)["rate"] for line in lines]
    assert rates[-1] == pytest.approx(1e-9 / 8)


def test_best_epoch_is_kept(
    data: Data[Sentence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def log(line: str) -> None:
        if line.startswith("epoch 2"):
            [path] = (tmp_path / "run" / "checkpoints").glob("*")
            assert path.name.endswith("0001")  # logged before it is saved

    scored(monkeypatch, [50.0, 90.0, 70.0, 90.0])
    result = train(TASK, config("train.epochs=3"), data, tmp_path / "run", log=log)
    assert result.best_epoch == 2
    monkeypatch.undo()
    train(TASK, config("train.epochs=2"), data, tmp_path / "two")
    assert weights(tmp_path / "run") == weights(tmp_path / "two")


def test_patience_and_halving_start_with_the_first_score(
    data: Data[Sentence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = config("train.epochs=30", "train.patience=2", "train.halve_after=1")
    scores = [0.0, 0.0, 0.0, 0.0, 5.0, 5.0, 5.0]
    scored(monkeypatch, scores)
    result = train(TASK, run, data, tmp_path / "whole")
    assert (result.best_epoch, result.epochs) == (5, 7)
    lines = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    rates = [json.loads(line)["rate"] for line in lines]
    assert len(set(rates[:5])) == 1
    assert rates[4:] == [rates[0], rates[0] / 2, rates[0] / 4]

    # A run that is interrupted during the zeros continues to count as if it had not been.
    def interrupt(name: str, done: int, _: int) -> None:
        if (name, done) == ("epoch 4", 2) and not (tmp_path / "stopped").exists():
            (tmp_path / "stopped").touch()
            os.kill(os.getpid(), signal.SIGINT)

    scored(monkeypatch, scores)
    cut = tmp_path / "cut"
    assert train(TASK, run, data, cut, progress=interrupt).interrupted
    assert train(TASK, run, data, cut, resume=True, progress=interrupt).epochs == 7
    assert weights(cut) == weights(tmp_path / "whole")


NAN = float("nan")


@pytest.mark.parametrize(
    ("scores", "best", "expected"),
    [
        ([NAN, 5.0, NAN, 4.0], 2, ""),
        (
            [NAN, NAN, NAN, NAN],
            4,
            "The dev f1 was never finite, so the last epoch is used. Try more epochs, more data or "
            "a different learning rate.",
        ),
        ([-2.0, NAN, -1.0, -3.0], 3, ""),
    ],
)
def test_nan_score_is_worse_than_any_other(
    data: Data[Sentence],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scores: list[float],
    best: int,
    expected: str,
) -> None:
    lines: list[str] = []
    scored(monkeypatch, scores)
    result = train(TASK, config("train.epochs=4"), data, tmp_path / "run", log=lines.append)
    assert (result.best_epoch, result.epochs) == (best, 4)
    assert [line for line in lines if "last epoch" in line] == ([expected] if expected else [])


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.Adadelta])
def test_optimizer_state_of_a_scalar_weight_is_resumed(
    kind: type[torch.optim.Optimizer], tmp_path: Path
) -> None:
    class Scalar(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = torch.nn.Parameter(torch.tensor(2.0))

    def step(model: Scalar, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        model.a.square().backward()
        optimizer.step()

    def run() -> Any:
        model: Any = Scalar()
        position = checkpoint.Position(rate=1e-3)
        identity = {"task": "", "config": {}, "data": ""}
        settings, optimizer = config().train, kind(model.parameters())
        return checkpoint.Run(tmp_path, identity, model, optimizer, settings, position)

    first, again = run(), run()
    step(first.model, first.optimizer)
    first.save()
    path = checkpoint.newest(tmp_path)
    assert path is not None
    again.load(path)
    first.set_learning_rate(1e-3)
    step(first.model, first.optimizer)
    step(again.model, again.optimizer)
    assert torch.equal(first.model.a, again.model.a)


@pytest.mark.parametrize(
    ("name", "value"),
    [("position.step", "x"), ("position.epoch", -1), ("position.seconds", []), ("data", None)],
)
def test_invalid_values_of_a_checkpoint_are_errors(
    data: Data[Sentence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: Any
) -> None:
    settings = config("train.epochs=2", "train.checkpoint_every=1")
    with monkeypatch.context() as patch:
        patch.setattr("elmokit.tasks.saved.save", None)  # stop just before the end
        with pytest.raises(TypeError):
            train(TASK, settings, data, tmp_path)
    path = checkpoint.newest(tmp_path)
    assert path is not None
    values = json.loads((path / checkpoint.RUN).read_text())
    *groups, key = name.split(".")
    group = values[groups[0]] if groups else values
    if value is None:
        del group[key]
    else:
        group[key] = value
    (path / checkpoint.RUN).write_text(json.dumps(values))
    with pytest.raises(WeightsError, match="damaged"):
        train(TASK, settings, data, tmp_path, resume=True)


def test_recent_checkpoints_are_not_replaced(data: Data[Sentence], tmp_path: Path) -> None:
    kept: list[list[str]] = []

    def log(line: str) -> None:
        if line.startswith("epoch"):
            kept.append([path.name for path in (tmp_path / "run" / "checkpoints").glob("*")])

    run = config("train.epochs=3", "train.checkpoint_seconds=1000")
    train(TASK, run, data, tmp_path / "run", log=log)
    assert kept == [[], [], []]


def test_existing_directories_are_not_changed(data: Data[Sentence], tmp_path: Path) -> None:
    out = tmp_path / "run"
    train(TASK, config("train.epochs=1"), data, out)
    with pytest.raises(OutputError):
        train(TASK, config("train.epochs=1"), data, out)
    again = train(TASK, config("train.epochs=1"), data, out, resume=True)
    assert again.epochs == 1  # finished: no work is left
    with pytest.raises(ConfigError, match=r"different settings: model.hidden"):
        train(TASK, config("train.epochs=1", "model.hidden=9"), data, out, resume=True)
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"Cannot write .*file"):
        train(TASK, config(), data, tmp_path / "file")
    with pytest.raises(OutputError, match=r"do not belong to a task model \(file, run\)"):
        train(TASK, config(), data, tmp_path)


def test_finished_run_is_not_extended_or_evaluated_on_other_data(
    files: tuple[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    run = config("train.epochs=1")
    test, other = (
        str(write_columns(tmp_path / name, 6, seed)) for name, seed in (("t", 7), ("o", 8))
    )
    measured = load_data(TASK, run, *files, test)
    done = train(TASK, run, measured, out)
    assert train(TASK, run, measured, out, resume=True) == done
    for data in (load_data(TASK, run, *files), load_data(TASK, run, *files, other)):
        with pytest.raises(DataError, match=rf"different data.*elmo task ner evaluate {out} FILE"):
            train(TASK, run, data, out, resume=True)
    longer = config("train.epochs=2", "train.patience=9")
    with pytest.raises(ConfigError, match=r"finished with .* train.epochs, train.patience"):
        train(TASK, longer, measured, out, resume=True)


def test_last_epoch_is_the_best_while_the_score_is_0(
    data: Data[Sentence], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages: list[str] = []
    scored(monkeypatch, [0.0])
    result = train(TASK, config("train.epochs=3"), data, tmp_path / "run", log=messages.append)
    assert result.best_epoch == 3
    assert any("never exceeded 0" in line for line in messages)
    monkeypatch.undo()
    scored(monkeypatch, [10.0, 20.0, 30.0])
    train(TASK, config("train.epochs=3"), data, tmp_path / "risen", log=messages.append)
    assert weights(tmp_path / "run") == weights(tmp_path / "risen")
    assert len([line for line in messages if "never exceeded" in line]) == 1
    # The metric of a custom task may be negative.
    monkeypatch.undo()
    scored(monkeypatch, [-5.0, 0.0, -3.0])
    assert train(TASK, config("train.epochs=3"), data, tmp_path / "signed").best_epoch == 2


def test_run_does_not_resume_with_other_data(
    data: Data[Sentence], files: tuple[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "run"

    def interrupt(_: str, done: int, __: int) -> None:
        if done == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    assert train(TASK, config(), data, out, progress=interrupt).interrupted
    with pytest.raises(OutputError, match="--resume"):
        train(TASK, config(), data, out)
    other = load_data(TASK, config(), str(write_columns(tmp_path / "t", 9, 5)), files[1])
    with pytest.raises(DataError):
        train(TASK, config(), other, out, resume=True)
    path = checkpoint.newest(out)
    assert path is not None
    (path / checkpoint.RUN).write_text("{")
    with pytest.raises(checkpoint.WeightsError, match="damaged"):
        train(TASK, config(), data, out, resume=True)


def test_damaged_results_are_rejected(data: Data[Sentence], tmp_path: Path) -> None:
    out, run = tmp_path / "run", config("train.epochs=1")
    train(TASK, run, data, out)
    values = json.loads((out / "config.json").read_text())
    for results in (5, {}, {**values["results"], "more": 1}):
        (out / "config.json").write_text(json.dumps({**values, "results": results}))
        with pytest.raises(ConfigError):
            train(TASK, run, data, out, resume=True)


def test_non_finite_loss_stops_the_run(data: Data[Sentence], tmp_path: Path) -> None:
    run = config("train.optimizer=sgd", "train.clip=0", "train.learning_rate=1e30")
    with pytest.raises(NotFiniteError, match="learning rate below"):
        train(TASK, run, data, tmp_path / "run")


def test_fractions_are_subsets_of_larger_fractions() -> None:
    examples = [Sentence((str(i),)) for i in range(1000)]
    small, large = sample_fraction(examples, 0.1), sample_fraction(examples, 0.5)
    assert len(small) == 100
    assert set(small) < set(large)
    assert sample_fraction(examples, 1.0) == examples
    assert len(sample_fraction(examples[:3], 0.001)) == 1


def test_fraction_of_the_data_uses_only_its_own_words(files: tuple[str, str]) -> None:
    whole = load_data(TASK, config(), *files)
    part = load_data(TASK, config("train.share=0.1"), *files)
    assert len(part.train) == 6
    assert len(part.words.words) < len(whole.words.words)


def test_batches_contain_every_example_once_within_the_limits() -> None:
    sizes = np.random.default_rng(0).integers(1, 60, 500)
    sizes[7] = 1000
    seen = []
    for seed in ((0, 0), (0, 1), (1, 0), None):
        batches = plan_batches(sizes, 16, 400, seed=seed)
        assert sorted(i for batch in batches for i in batch) == list(range(500))
        for batch in batches:
            assert len(batch) <= 16
            assert len(batch) == 1 or len(batch) * sizes[batch].max() <= 400
        seen.append(batches)
        assert batches == plan_batches(sizes, 16, 400, seed=seed)
    assert seen[0] != seen[1] != seen[2]


def test_settings_are_validated() -> None:
    base = Ner.presets["paper"]
    changed = with_settings(base, ["train.epochs=3", "elmo.mix=0.5,0.5,0", "elmo.penalty=1"])
    assert changed.train.epochs == 3
    assert changed.elmo.weights(3) == [0.5, 0.5, 0.0]
    assert TaskConfig.from_dict(changed.to_dict(), NerConfig) == changed
    for wrong in (
        *("train.epochs=many", "train.epochs=0", "elmo.place=top", "train.share=0"),
        *("train.seed=99999999999999999999", "train.clip=-1", "train.clip=NaN"),
        *("train.weight_decay=-1", "train.learning_rate=Infinity", "train.patience=-1"),
        *("train.halve_after=-1", "train.checkpoint_every=-1", "static.words=-5"),
        *("elmo.dropout=1", "model.dropout=2", "model.word_dropout=-0.1", "model.hidden=0"),
        *("model.char_filters=-1", "model.scheme=XYZ", "elmo.mix=0.5,", "elmo.mix=inf,1,1"),
    ):
        name, _, value = wrong.partition("=")
        with pytest.raises(ConfigError, match=f"Invalid value for {name}: '{value}'"):
            with_settings(base, [wrong])
