"""Fine-tuning in complete runs, of a model with its head and of bare weights."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from typer.testing import CliRunner

from elmokit.cli.main import app
from elmokit.data.corpus import Corpus
from elmokit.data.layout import PrepareSettings
from elmokit.data.prepare import prepare, read_vocabulary
from elmokit.errors import ConfigError
from elmokit.settings import with_settings
from elmokit.sources import hdf5dir, modeldir
from elmokit.sources.modeldir import ModelParts
from elmokit.sources.resolve import load_parts
from elmokit.train import checkpoint
from elmokit.train.config import RunConfig, run_preset
from elmokit.train.finetune import (
    InitialModel,
    finetune_config,
    perplexity_by_stage,
    prepare_initial_model,
)
from elmokit.train.loop import TrainResult, train
from elmokit.train.metrics import Metrics
from elmokit.train.optimizer import OptimizerConfig
from tests.train.conftest import SETTINGS
from tests.train.test_loop import losses, weights

QUICK = ["step.rows=4", "step.steps=7", "step.negatives=20", "log_every=1", "evaluate_every=0"]
FASTER = ["optimizer.learning_rate=0.005", "optimizer.warmup=5", "optimizer.head_rate=0.02"]


def other_text(seed: int = 0) -> str:
    """Write a different kind of text: words in a fixed order, from a random position."""
    rng = random.Random(seed)
    words = "the dog of a cat and zebra was in the garden to read книга is 本".split()
    documents = []
    for _ in range(50):
        first = [rng.randrange(len(words)) for _ in range(rng.randint(1, 5))]
        documents.append("\n".join(" ".join((words + words)[a : a + 12]) for a in first))
    return "\n\n".join(documents) + "\n"


@pytest.fixture(scope="module")
def trained(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a model with its head."""
    out = tmp_path_factory.mktemp("trained")
    config = with_settings(run_preset("toy"), [*SETTINGS, "evaluate_every=0"])
    return train(dataclasses.replace(config, max_steps=120), corpus, out / "run").model


@pytest.fixture(scope="module")
def bare(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save the model as AllenNLP publishes models: options and HDF5 weights, no head or words."""
    folder = tmp_path_factory.mktemp("bare") / "hdf5"
    hdf5dir.save(ModelParts(modeldir.load(trained).bilm), folder)
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "other.txt"
    path.write_text(other_text(), "utf-8")
    return path


@pytest.fixture(scope="module")
def with_its_words(trained: Path, text: Path) -> Corpus:
    """Prepare the other text with the model's vocabulary."""
    data, settings = text.parent / "same", PrepareSettings(valid=0.2)
    prepare([text], data, settings, workers=1, vocabulary=read_vocabulary(trained))
    return Corpus.open(data)


@pytest.fixture(scope="module")
def with_own_words(text: Path) -> Corpus:
    prepare([text], text.parent / "own", PrepareSettings(valid=0.2), workers=1)
    return Corpus.open(text.parent / "own")


def tuned(
    start: InitialModel, corpus: Corpus, out: Path, settings: list[str] | None = None, **given: Any
) -> tuple[TrainResult, dict[str, Any]]:
    options = {k: given.pop(k) for k in ("resume", "log") if k in given}
    every = given.pop("checkpoint_every", 0)
    config = finetune_config(start, corpus, settings=settings or [*QUICK, *FASTER], **given)
    config = dataclasses.replace(config, checkpoint_every=every)
    run = train(config, corpus, out, initial=start.parts, **options)
    return run, perplexity_by_stage(config, run)


def means(perplexity: dict[str, Any]) -> list[float]:
    return [p["mean"] for p in perplexity.values()]


def test_model_with_its_head_learns_other_text(
    trained: Path, with_its_words: Corpus, out: Path
) -> None:
    start = prepare_initial_model(load_parts(trained), with_its_words)
    assert not start.has_new_head
    run, perplexity = tuned(start, with_its_words, out, max_steps=80)
    assert list(perplexity) == ["before", "after"]
    before, after = means(perplexity)
    assert after < before / 2
    parts = modeldir.load(run.model)
    assert parts.head is not None
    assert parts.vocabulary is not None
    assert parts.vocabulary.words == modeldir.load(trained).vocabulary.words  # type: ignore[union-attr]
    assert parts.metadata["finetuned_from"] == "run"  # the name of the trained model
    assert "| base model | run |" in (parts.card or "")
    assert f"| perplexity | {after:.1f} (carry) |" in (parts.card or "")
    assert f"| perplexity of the base model | {before:.1f} (carry) |" in (parts.card or "")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert [v["step"] for v in lines if "valid_mean" in v] == [0, 80]
    assert max(v["learning_rate"] for v in lines if "learning_rate" in v) == 0.005


def test_biLM_of_bare_weights_is_frozen_until_its_new_head_is_trained(
    bare: Path, with_own_words: Corpus, out: Path
) -> None:
    parts = load_parts(bare)
    assert parts.head is None
    start = prepare_initial_model(parts, with_own_words)
    assert start.has_new_head
    _, perplexity = tuned(start, with_own_words, out, max_steps=120, checkpoint_every=60)
    assert list(perplexity) == ["before", "head", "after"]
    before, head, after = means(perplexity)
    assert after < head < before
    stored = load_parts(bare).bilm.state_dict()
    for step, same in ((60, True), (120, False)):
        path = out / checkpoint.FOLDER / f"step-{step:08d}" / checkpoint.WEIGHTS
        now = load_file(path)
        assert all(torch.equal(now[f"bilm.{name}"], t) for name, t in stored.items()) is same
        assert now["head.weight"].abs().max() > 0
    learned = [n for n, t in stored.items() if not torch.equal(now[f"bilm.{n}"], t)]
    assert set(learned) == {name for name, _ in parts.bilm.named_parameters()}


def test_new_head_is_initialized_with_word_frequencies(
    bare: Path, with_own_words: Corpus, out: Path
) -> None:
    start = prepare_initial_model(load_parts(bare), with_own_words)
    before = tuned(start, with_own_words, out, max_steps=1)[1]["before"]
    counts = with_own_words.target_counts + 1.0
    loss = -np.log(counts / counts.sum())
    valid = with_own_words.tokens("valid").astype(np.int64)
    valid[valid >= with_own_words.n_words] = 2
    assert before["forward"] == pytest.approx(np.exp(loss[valid].mean()), rel=1e-5)


def test_early_stopping_keeps_the_initial_weights_if_they_are_best(
    trained: Path, with_its_words: Corpus, out: Path
) -> None:
    start = prepare_initial_model(load_parts(trained), with_its_words)
    worse = [*QUICK, "optimizer.learning_rate=1", "optimizer.warmup=0", "optimizer.clip=1e9"]
    worse += ["evaluate_every=1", "patience=2"]
    run, perplexity = tuned(start, with_its_words, out, worse, max_steps=20)
    assert run.steps == 0
    assert perplexity["after"] == perplexity["before"]
    initial = load_parts(trained).bilm.state_dict()
    for name, tensor in modeldir.load(run.model).bilm.state_dict().items():
        assert torch.equal(tensor, initial[name])


def test_initial_evaluation_is_counted_once_for_early_stopping(
    trained: Path, with_its_words: Corpus, out: Path
) -> None:
    start = prepare_initial_model(load_parts(trained), with_its_words)
    changes = [*QUICK, *FASTER, "evaluate_every=2", "patience=1"]
    config = finetune_config(start, with_its_words, settings=changes, max_steps=2)
    train(config, with_its_words, out, initial=start.parts)
    # As if the run had been stopped in the first step.
    for path in (out / checkpoint.FOLDER).glob("step-*"):
        if path.name != "step-00000000":
            shutil.rmtree(path)
    shutil.rmtree(out / "model")
    run = train(config, with_its_words, out, initial=start.parts, resume=True)
    assert run.steps == 2


def test_head_of_a_model_can_be_discarded(trained: Path, with_own_words: Corpus, out: Path) -> None:
    start = prepare_initial_model(load_parts(trained), with_own_words, new_head=True)
    run, _ = tuned(start, with_own_words, out, max_steps=4, head_steps=4)
    assert modeldir.load(run.model).vocabulary is not None


@pytest.mark.parametrize("cut", [5, 13])  # while only the head learns, and afterwards
@pytest.mark.parametrize("kind", ["adamw", "adagrad"])
def test_resumed_run_equals_an_uninterrupted_run(
    bare: Path, with_own_words: Corpus, tmp_path: Path, kind: str, cut: int
) -> None:
    def run(out: Path, **given: Any) -> tuple[TrainResult, dict[str, Any]]:
        start = prepare_initial_model(load_parts(bare), with_own_words)
        settings = [*QUICK, *FASTER, f"optimizer.kind={kind}"]
        return tuned(start, with_own_words, out, settings, max_steps=20, head_steps=10, **given)

    def stop(line: str) -> None:
        if line.startswith(f"step {cut}/"):
            os.kill(os.getpid(), signal.SIGINT)

    _, whole = run(tmp_path / "whole")
    first, measured = run(tmp_path / "cut", log=stop)
    assert first.interrupted
    assert first.steps == cut
    assert "after" not in measured
    _, second = run(tmp_path / "cut", resume=True)
    assert second == whole
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")


def test_run_does_not_resume_from_another_initial_model(
    trained: Path, bare: Path, with_its_words: Corpus, out: Path
) -> None:
    given = {"max_steps": 2, "head_steps": 1}
    tuned(prepare_initial_model(load_parts(trained), with_its_words), with_its_words, out, **given)
    start = prepare_initial_model(load_parts(bare), with_its_words)
    with pytest.raises(ConfigError, match="different settings: start"):
        tuned(start, with_its_words, out, resume=True, **given)


def test_another_vocabulary_is_rejected(trained: Path, with_own_words: Corpus) -> None:
    with pytest.raises(ConfigError, match=r"elmo prepare --vocab .*model FILES.*--new-head"):
        prepare_initial_model(load_parts(trained), with_own_words)


def test_invalid_requests_are_rejected(bare: Path, with_own_words: Corpus) -> None:
    start = prepare_initial_model(load_parts(bare), with_own_words)
    for given, message in (
        ({"settings": ["lstm.dim=70"]}, "configuration of .* cannot be changed"),
        ({"max_steps": 5, "head_steps": 6}, "head_steps: 6"),
    ):
        with pytest.raises(ConfigError, match=message):
            finetune_config(start, with_own_words, **given)  # type: ignore[arg-type]


def test_number_of_steps_depends_on_the_text_and_the_head(
    trained: Path, bare: Path, with_its_words: Corpus
) -> None:
    old, new = (prepare_initial_model(load_parts(path), with_its_words) for path in (trained, bare))
    settings = ["step.rows=2", "step.steps=5"]
    one_pass = round(len(with_its_words.tokens()) / 10)
    config = finetune_config(old, with_its_words, settings=settings)
    assert (config.max_steps, config.optimizer.head_steps) == (one_pass, 0)
    config = finetune_config(new, with_its_words, settings=settings)
    assert config.max_steps == round(2 * len(with_its_words.tokens()) / 10)
    assert config.optimizer.head_steps == config.max_steps // 2
    given = [*settings, f"max_steps={RunConfig.max_steps}", "optimizer.head_steps=0"]
    config = finetune_config(new, with_its_words, settings=given)
    assert (config.max_steps, config.optimizer.head_steps) == (RunConfig.max_steps, 0)
    settings += ["max_steps=30", "optimizer.head_steps=7"]
    config = finetune_config(new, with_its_words, settings=settings)
    assert (config.max_steps, config.optimizer.head_steps) == (30, 7)


def test_each_phase_has_its_own_schedule() -> None:
    config = OptimizerConfig(learning_rate=1.0, warmup=10, final=0.1, head_steps=100, head_rate=5.0)
    rates = [config.learning_rate_at(step, 300) for step in range(300)]
    assert (np.argmax(rates), max(rates)) == (9, 5.0)
    assert rates[99] == pytest.approx(0.5, rel=0.01)
    assert rates[100] == pytest.approx(0.1)
    assert max(rates[100:]) == 1.0
    assert rates[-1] == pytest.approx(0.1, rel=0.01)


def test_initial_evaluation_is_recorded_once(tmp_path: Path) -> None:
    for done, expected in ((0, [0]), (0, [0]), (1, [0, 1])):  # new, new, resumed
        metrics = Metrics(tmp_path, done)
        metrics.write({"step": done, "tokens": 0})
        metrics.close()
        lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["step"] for line in lines] == expected


def test_command_prints_the_improvement(bare: Path, text: Path, tmp_path: Path) -> None:
    run = CliRunner().invoke
    data = ["prepare", str(text), "-o", str(tmp_path / "data"), "--valid", "0.2", "--workers", "1"]
    assert run(app, data).exit_code == 0
    arguments = ["finetune", str(bare), str(tmp_path / "data"), "-o", str(tmp_path / "run")]
    arguments += ["--max-steps", "30", "--head-steps", "20", "--device", "cpu", "--json"]
    for setting in [*QUICK, *FASTER]:
        arguments += ["--set", setting]
    result = run(app, arguments)
    assert result.exit_code == 0, result.output
    values = json.loads(result.stdout)
    assert (values["steps"], values["head_steps"], values["new_head"]) == (30, 20, True)
    assert values["perplexity"]["after"]["mean"] < values["perplexity"]["before"]["mean"]
    assert "Held-out perplexity: " in result.stderr
    # A fine-tuned model can be fine-tuned again.
    again = ["finetune", values["model"], str(tmp_path / "data"), "-o", str(tmp_path / "again")]
    result = run(app, [*again, "--max-steps", "2", "--device", "cpu", "--json", "--quiet"])
    assert result.exit_code == 0, result.output
    second = json.loads(result.stdout)
    assert second["new_head"] is False
    expected = values["perplexity"]["after"]["mean"]
    assert second["perplexity"]["before"]["mean"] == pytest.approx(expected, rel=1e-6)
