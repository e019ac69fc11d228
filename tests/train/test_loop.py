"""Training in complete runs: learning, resuming after kills, rejected input."""

from __future__ import annotations

import dataclasses
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

import elmokit
from elmokit.data.corpus import Corpus
from elmokit.errors import ConfigError, DataError, NotFiniteError, OutputError
from elmokit.settings import with_settings
from elmokit.train import checkpoint
from elmokit.train.config import RunConfig, run_preset
from elmokit.train.loop import train
from elmokit.train.metrics import read_evaluations
from elmokit.train.step import PlainStep, StepResult
from tests.process_utils import FileOperation, Pause, elmo, kill_when, start
from tests.process_utils import run as run_child
from tests.train.conftest import SETTINGS, settings

# Calls at which the runs below are killed.
LOG = "elmokit.train.metrics.Metrics.write"
WRITE = "elmokit.train.checkpoint.write_tensors"
EXPORT = "elmokit.train.loop.export"


def losses(run: Path) -> list[tuple[int, float, float]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        (v["step"], v["sampled_loss_forward"], v["sampled_loss_backward"])
        for v in lines
        if "sampled_loss_forward" in v
    ]


def test_run_reduces_the_loss_and_writes_a_complete_model(corpus: Corpus, out: Path) -> None:
    result = train(settings(max_steps=120, evaluate_every=60), corpus, out, warm_state=True)
    assert result.steps == 120
    assert result.perplexity is not None
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    evaluations = [v["valid_mean"] for v in lines if "valid_mean" in v]
    assert len(evaluations) == 2
    assert evaluations[1] < evaluations[0] < corpus.n_words
    elmo = elmokit.load(result.model)
    assert elmo.head is not None
    assert elmo.vocabulary is not None
    assert elmo.vocabulary.words == corpus.vocabulary.words
    for state in ("reset", "warm", "carry"):
        assert elmo.embed("The dog can't read.", state).layers.shape == (3, 6, 32)
    assert elmo.warm is not None
    assert elmo.warm.cell.shape == (2, 2, 1, 24)
    assert elmo.warm.cell.abs().max() > 0


def test_same_seed_gives_the_same_run_and_another_seed_does_not(
    corpus: Corpus, tmp_path: Path
) -> None:
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        train(settings(max_steps=6, seed=seed), corpus, tmp_path / name)
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    assert losses(tmp_path / "a") != losses(tmp_path / "c")


@pytest.mark.slow
@pytest.mark.skipif(os.cpu_count() == 1, reason="one core: torch uses one thread")
def test_two_threads_are_deterministic(corpus: Corpus, tmp_path: Path) -> None:
    # Large enough for torch to use both threads; a variable summation order would show after a few
    # steps.
    config = dataclasses.replace(run_preset("toy"), max_steps=5, log_every=1, evaluate_every=0)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        for name in ("a", "b"):
            train(config, corpus, tmp_path / name)
    finally:
        torch.set_num_threads(before)
    assert losses(tmp_path / "a") == losses(tmp_path / "b")


@pytest.mark.parametrize("kind", ["adamw", "adagrad"])
def test_resumed_run_equals_an_uninterrupted_run(corpus: Corpus, tmp_path: Path, kind: str) -> None:
    config = settings(max_steps=24)
    config = with_settings(config, [f"optimizer.kind={kind}"])
    assert config.step.dropout > 0
    train(config, corpus, tmp_path / "whole")
    # A run that is stopped at step 13, in the middle of a block of the streams.
    part = dataclasses.replace(config, checkpoint_every=13)
    cut = interrupt_at(part, corpus, tmp_path / "cut", 13)
    assert cut == 13
    train(config, corpus, tmp_path / "cut", resume=True)
    assert losses(tmp_path / "whole") == losses(tmp_path / "cut")
    assert weights(tmp_path / "whole") == weights(tmp_path / "cut")


def interrupt_at(config: RunConfig, corpus: Corpus, out: Path, at: int) -> int:
    """Stop a run with the signal that a user would send, after it has logged step `at`."""

    def log(line: str) -> None:
        if line.startswith(f"step {at}/"):
            os.kill(os.getpid(), signal.SIGINT)

    result = train(config, corpus, out, log=log)
    assert result.interrupted
    return result.steps


def weights(run: Path) -> dict[str, bytes]:
    found = {}
    for name in ("model.safetensors", "head.safetensors"):
        for key, tensor in load_file(run / "model" / name).items():
            found[f"{name}/{key}"] = tensor.numpy().tobytes()
    return found


def command(corpus: Corpus, run: Path) -> list[object]:
    """Return the command for the run of `settings(max_steps=8, checkpoint_every=1)`."""
    words: list[object] = ["train", corpus.path, "-o", run, "--preset", "toy", "--max-steps", 8]
    words += ["--resume", "--device", "cpu"]
    for setting in ("log_every=1", "evaluate_every=0", "checkpoint_every=1", *SETTINGS):
        words += ["--set", setting]
    return words


def test_kill_9_does_not_change_the_result(corpus: Corpus, tmp_path: Path) -> None:
    run = tmp_path / "killed"
    newest = []
    for point in (
        Pause(LOG, call=3, after=True),
        Pause(WRITE, call=5),  # during its second checkpoint
        Pause(EXPORT),
    ):
        assert kill_when(point, elmo, *command(corpus, run))
        newest.append(checkpoint.newest(run))
    assert [path and path.name[-2:] for path in newest] == ["02", "03", "08"]
    done = run_child(elmo, *command(corpus, run))
    assert done.exit_code == 0, done.stderr
    train(settings(max_steps=8, checkpoint_every=1), corpus, tmp_path / "whole")
    assert losses(run) == losses(tmp_path / "whole")
    assert [step for step, *_ in losses(run)] == list(range(1, 9))
    assert weights(run) == weights(tmp_path / "whole")


def train_in_child(corpus: Path, run: Path) -> None:
    config = settings(max_steps=2, checkpoint_every=1, keep=1)
    train(config, Corpus.open(corpus), run, resume=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", [pytest.param(1, marks=pytest.mark.ci), 2, 3, 4, 5])
def test_kill_at_any_file_operation_does_not_change_the_result(
    corpus: Corpus, tmp_path: Path, first: int
) -> None:
    train_in_child(corpus.path, tmp_path / "whole")
    for n in range(first, 1000, 5):
        run = tmp_path / str(n)
        if not kill_when(FileOperation(run, n), train_in_child, corpus.path, run):
            break
        train_in_child(corpus.path, run)
        assert losses(run) == losses(tmp_path / "whole")
        assert weights(run) == weights(tmp_path / "whole")
        shutil.rmtree(run)
    assert n > 60


def test_concurrent_run_in_the_same_directory_is_rejected(corpus: Corpus, tmp_path: Path) -> None:
    with start(elmo, *command(corpus, tmp_path / "run"), pause=Pause(LOG)) as child:
        child.wait_for_pause()
        with pytest.raises(OutputError):
            train(settings(max_steps=2), corpus, tmp_path / "run", resume=True)


def test_old_checkpoints_are_removed_and_the_best_is_kept(corpus: Corpus, out: Path) -> None:
    train(settings(max_steps=10, checkpoint_every=2, evaluate_every=2, keep=2), corpus, out)
    names = sorted(p.name for p in (out / checkpoint.FOLDER).iterdir())
    assert names[-2:] == ["step-00000008", "step-00000010"]
    assert len(names) <= 3


def test_resume_without_a_previous_run_starts_from_scratch_with_a_message(
    corpus: Corpus, out: Path
) -> None:
    messages: list[str] = []
    train(settings(max_steps=2), corpus, out, resume=True, log=messages.append)
    assert any("No checkpoint" in line for line in messages)


def test_new_run_in_an_existing_directory_is_rejected(corpus: Corpus, out: Path) -> None:
    train(settings(max_steps=2), corpus, out)
    with pytest.raises(ConfigError, match="--resume"):
        train(settings(max_steps=2), corpus, out)


@pytest.mark.parametrize("resume", [False, True])
def test_finished_model_is_not_replaced_after_its_checkpoints_were_removed(
    corpus: Corpus, out: Path, resume: bool
) -> None:
    train(settings(max_steps=2), corpus, out)
    shutil.rmtree(out / "checkpoints")
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="already contains a model"):
        train(settings(max_steps=2, seed=9), corpus, out, resume=resume)
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_changed_settings_are_named(corpus: Corpus, out: Path) -> None:
    train(settings(max_steps=2), corpus, out)
    with pytest.raises(ConfigError, match="different settings: restart"):
        train(settings(max_steps=4, restart=0.5), corpus, out, resume=True)


def damage(path: Path) -> None:
    """Change a byte near the end of a file."""
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("name", [checkpoint.TRAINER, checkpoint.WEIGHTS, checkpoint.STATE])
def test_previous_checkpoint_is_used_if_the_latest_is_damaged(
    corpus: Corpus, tmp_path: Path, name: str
) -> None:
    train(settings(max_steps=6), corpus, tmp_path / "whole")
    run = tmp_path / "run"
    train(settings(max_steps=4, checkpoint_every=2), corpus, run)
    damage(run / checkpoint.FOLDER / "step-00000004" / name)
    lines: list[str] = []
    config = settings(max_steps=6, checkpoint_every=2, keep=1)
    assert train(config, corpus, run, resume=True, log=lines.append).steps == 6
    assert any("step-00000004 is damaged" in line and name in line for line in lines) or (
        name == checkpoint.TRAINER
    )
    assert "Resuming from step 2." in lines
    assert weights(run) == weights(tmp_path / "whole")


def test_sparse_checkpoint_is_not_read(
    corpus: Corpus, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_fingerprint(path: Path) -> str:
        raise AssertionError(f"{path} was read")

    train(settings(max_steps=2), corpus, out)
    newest = checkpoint.newest(out)
    assert newest is not None
    monkeypatch.setattr(checkpoint, "fingerprint_file", no_fingerprint)
    for path in newest.glob("*.safetensors"):
        size = path.stat().st_size
        os.truncate(path, size + 2**40)  # sparse: takes no disk space
        with pytest.raises(elmokit.ElmoError, match=path.name):
            train(settings(max_steps=4), corpus, out, resume=True)
        os.truncate(path, size)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("step", "x"),
        ("step", 10**30),
        ("files", None),
        ("config", 5),
        ("config", {}),
        ("perplexity", {"mean": 1.0}),
        ("capacity", {"types": 1}),
        ("position", 5),
        ("position.documents", None),
        ("position.epoch", -1),
        ("position.taken", 10**9),
        ("position.given", 1000),
        ("position.document", [0]),
        ("position.offset", [-1] * 4),
    ],
)
def test_invalid_values_of_a_checkpoint_are_errors(
    corpus: Corpus, out: Path, name: str, value: Any
) -> None:
    train(settings(max_steps=2), corpus, out)
    newest = checkpoint.newest(out)
    assert newest is not None
    values = json.loads((newest / checkpoint.TRAINER).read_text())
    *groups, key = name.split(".")
    group = values[groups[0]] if groups else values
    group[key] = value
    del values["check"]
    values["check"] = checkpoint._checksum(values)  # as an attacker would
    (newest / checkpoint.TRAINER).write_text(json.dumps(values))
    with pytest.raises(elmokit.ElmoError):
        train(settings(max_steps=4), corpus, out, resume=True)


def test_error_if_all_checkpoints_are_damaged(corpus: Corpus, out: Path) -> None:
    train(settings(max_steps=2), corpus, out)
    newest = checkpoint.newest(out)
    assert newest is not None
    (newest / checkpoint.TRAINER).write_text("{")
    with pytest.raises(elmokit.ElmoError, match="Remove"):
        train(settings(max_steps=4), corpus, out, resume=True)


@pytest.mark.parametrize(
    "point", ["elmokit.train.step.PlainStep.__call__", "elmokit.train.loop._held_out_perplexity"]
)
def test_ctrl_c_takes_effect_immediately(corpus: Corpus, tmp_path: Path, point: str) -> None:
    run = tmp_path / "run"
    words = [*command(corpus, run), "--set", "evaluate_every=3"]
    with start(elmo, *words, pause=Pause(point)) as child:
        child.wait_for_pause()
        child.send_signal(signal.SIGINT)
        child.resume()
        assert child.wait() == 130, child.stderr
        assert "Stopping after this step" in child.stderr
        assert "held-out perplexity" not in child.stderr
        assert "Stopped at step" in child.stderr
    resumed = run_child(elmo, *words)
    assert resumed.exit_code == 0, resumed.stderr
    whole = tmp_path / "whole"
    assert run_child(elmo, *command(corpus, whole), "--set", "evaluate_every=3").exit_code == 0
    assert weights(run) == weights(whole)
    ends = [(run / "metrics.jsonl").read_text(), (whole / "metrics.jsonl").read_text()]
    means = [[json.loads(x).get("valid_mean") for x in end.splitlines()] for end in ends]
    assert means[0] == means[1]


def test_another_corpus_is_rejected(corpus: Corpus, out: Path, monkeypatch: Any) -> None:
    train(settings(max_steps=2), corpus, out)
    monkeypatch.setattr(Corpus, "fingerprint", "other")
    with pytest.raises(DataError):
        train(settings(max_steps=4), corpus, out, resume=True)


def test_non_finite_loss_stops_the_run(corpus: Corpus, out: Path) -> None:
    config = with_settings(settings(max_steps=50), ["optimizer.learning_rate=1e38"])
    with pytest.raises(NotFiniteError, match=r"Step \d+ produced .* lower learning rate"):
        train(config, corpus, out)


def test_diverged_run_resumes_with_a_lower_learning_rate(corpus: Corpus, out: Path) -> None:
    config = settings(max_steps=4, checkpoint_every=2, log_every=100)
    train(config, corpus, out)
    longer = dataclasses.replace(config, max_steps=30, checkpoint_every=1, keep=100)
    with pytest.raises(NotFiniteError, match="--resume"):
        train(with_settings(longer, ["optimizer.learning_rate=1e38"]), corpus, out, resume=True)
    # No checkpoint was saved after the first bad step.
    for path in (out / checkpoint.FOLDER).iterdir():
        for file in path.glob("*.safetensors"):
            assert all(torch.isfinite(t.float()).all() for t in load_file(file).values()), file
    shutil.rmtree(out / checkpoint.FOLDER / "step-00000005", ignore_errors=True)
    result = train(
        with_settings(longer, ["optimizer.learning_rate=1e-3", "optimizer.clip=1"]),
        corpus,
        out,
        resume=True,
    )
    assert result.steps == 30


def test_non_finite_weights_are_not_saved(
    corpus: Corpus, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train(settings(max_steps=2), corpus, out)
    step = PlainStep.__call__

    def spoil(self: PlainStep, *args: Any) -> StepResult:
        result = step(self, *args)
        self.head.weight.data[0, 0] = torch.nan
        return result

    monkeypatch.setattr(PlainStep, "__call__", spoil)
    with pytest.raises(NotFiniteError, match="weights"):
        train(settings(max_steps=9, checkpoint_every=3), corpus, out, resume=True)
    newest = checkpoint.newest(out)
    assert newest is not None
    assert newest.name == "step-00000002"


def test_overflow_of_the_held_out_loss_is_divergence(corpus: Corpus, out: Path) -> None:
    config = with_settings(settings(max_steps=20, evaluate_every=1), ["optimizer.warmup=0"])
    with pytest.raises(NotFiniteError, match="lower learning rate"):
        train(with_settings(config, ["optimizer.learning_rate=1e4"]), corpus, out)


def test_early_stopping(corpus: Corpus, out: Path) -> None:
    config = settings(max_steps=400, evaluate_every=1, patience=3)
    config = with_settings(config, ["optimizer.learning_rate=1e-30"])
    result = train(config, corpus, out)
    assert result.steps == 1  # the first one is the best, three more are worse
    newest = checkpoint.newest(out)
    assert newest is not None
    assert newest.name == "step-00000004"


def test_early_stopping_uses_the_best_weights(corpus: Corpus, out: Path) -> None:
    config = with_settings(
        settings(max_steps=60, evaluate_every=2, checkpoint_every=0, keep=1, patience=2),
        ["optimizer.learning_rate=0.3"],
    )
    result = train(config, corpus, out)
    means = {step: values["mean"] for step, values in read_evaluations(out).items()}
    assert result.steps == min(means, key=means.__getitem__) == max(means) - 4
    assert result.perplexity is not None
    assert result.perplexity.mean == means[result.steps]
    weights = load_file(out / "model" / "model.safetensors")
    saved = load_file(out / "checkpoints" / f"step-{result.steps:08d}" / "weights.safetensors")
    assert all(torch.equal(weights[name], saved[f"bilm.{name}"]) for name in weights)

    model = out / "model" / "config.json"
    before = model.stat().st_mtime_ns
    again = train(config, corpus, out, resume=True)
    assert (again.steps, again.perplexity) == (result.steps, result.perplexity)
    assert read_evaluations(out).keys() == means.keys()
    assert model.stat().st_mtime_ns == before
    last = dataclasses.replace(config, patience=0, max_steps=max(means))
    assert train(last, corpus, out, resume=True).steps == max(means)
    assert json.loads(model.read_text())["training"]["steps"] == max(means)
    longer = dataclasses.replace(config, patience=0, max_steps=max(means) + 2)
    assert train(longer, corpus, out, resume=True).steps == max(means) + 2


def test_early_stopping_enabled_after_training_uses_a_saved_checkpoint(
    corpus: Corpus, out: Path
) -> None:
    config = with_settings(
        settings(max_steps=20, evaluate_every=2, checkpoint_every=2, keep=1),
        ["optimizer.learning_rate=0.3"],
    )
    assert train(config, corpus, out).steps == 20
    result = train(dataclasses.replace(config, patience=1), corpus, out, resume=True)
    means = {step: values["mean"] for step, values in read_evaluations(out).items()}
    assert result.steps == min(means, key=means.__getitem__) < 20
    stored = json.loads((out / "model" / "config.json").read_text())["training"]
    assert (stored["steps"], stored["perplexity"]["mean"]) == (result.steps, means[result.steps])


def test_settings_are_changed_by_dotted_names() -> None:
    config = with_settings(run_preset("toy"), ["lstm.dim=128", "optimizer.kind=adagrad"])
    assert config.model.lstm.dim == 128
    assert config.optimizer.kind == "adagrad"


def test_config_round_trip_through_json() -> None:
    config = settings()
    assert RunConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_schedule_warms_up_and_decays() -> None:
    optimizer = run_preset("original").optimizer
    rates = [optimizer.learning_rate_at(step, 2000) for step in range(2000)]
    assert np.argmax(rates) in (optimizer.warmup - 1, optimizer.warmup)
    assert rates[0] == pytest.approx(optimizer.learning_rate / optimizer.warmup)
    assert rates[-1] == pytest.approx(optimizer.learning_rate * optimizer.final, rel=1e-2)


def test_linear_schedule_decays_in_equal_steps() -> None:
    changes = ["optimizer.decay=linear", "optimizer.final=0", "optimizer.warmup=10"]
    optimizer = with_settings(run_preset("toy"), changes).optimizer
    rates = np.array([optimizer.learning_rate_at(step, 110) for step in range(110)])
    assert rates[9] == rates[10] == optimizer.learning_rate
    assert np.diff(rates[10:]) == pytest.approx(-optimizer.learning_rate / 100)
    assert rates[-1] == pytest.approx(optimizer.learning_rate / 100)


def test_random_state_of_the_caller_is_not_changed(corpus: Corpus, out: Path) -> None:
    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    train(settings(max_steps=1), corpus, out)
    torch.manual_seed(123)
    assert torch.equal(torch.rand(3), expected)


def test_fewer_documents_than_rows_are_reported(corpus: Corpus, out: Path) -> None:
    documents = len(corpus.documents()) - 1
    few = settings(max_steps=1)
    messages: list[str] = []
    train(few, corpus, out / "few", log=messages.append)
    assert few.step.rows <= documents
    assert not any("documents" in line for line in messages)
    many = dataclasses.replace(few, step=dataclasses.replace(few.step, rows=documents + 1))
    train(many, corpus, out / "many", log=messages.append)
    assert any(f"only {documents} documents" in line for line in messages)
