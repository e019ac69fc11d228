"""The model directory of a run: what a resumed run keeps and replaces."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from elmokit.data.corpus import Corpus
from elmokit.errors import OutputError
from elmokit.train import checkpoint
from elmokit.train.loop import train
from tests.train.conftest import settings


def test_resuming_a_finished_run_keeps_its_perplexity(corpus: Corpus, out: Path) -> None:
    first = train(settings(max_steps=3), corpus, out)
    assert first.perplexity is not None
    again = train(settings(max_steps=3), corpus, out, resume=True)
    assert again.perplexity == first.perplexity
    written = json.loads((out / "model" / "config.json").read_text())
    assert written["training"]["perplexity"] == first.perplexity.to_dict()


def test_warm_state_is_created_only_on_request(corpus: Corpus, out: Path) -> None:
    train(settings(max_steps=2), corpus, out)
    assert not (out / "model" / "warm.safetensors").exists()
    train(settings(max_steps=2), corpus, out, resume=True, warm_state=True)
    assert (out / "model" / "warm.safetensors").exists()


def test_run_that_was_killed_before_the_export_exports_its_model(corpus: Corpus, out: Path) -> None:
    train(settings(max_steps=2), corpus, out)
    model, old = out / "model", out.with_name("old")
    model.rename(old)
    train(settings(max_steps=4), corpus, out, resume=True)
    shutil.rmtree(model)
    old.rename(model)  # as if the second run had been killed before the export
    assert train(settings(max_steps=4), corpus, out, resume=True).steps == 4
    assert json.loads((model / "config.json").read_text())["training"]["steps"] == 4


def test_resuming_a_finished_run_does_not_change_its_model(corpus: Corpus, out: Path) -> None:
    train(settings(max_steps=2), corpus, out)
    card = out / "model" / "README.md"
    card.write_text(card.read_text() + "\n## License\n\nCC0\n")
    before = card.stat().st_mtime_ns
    messages: list[str] = []
    train(settings(max_steps=2), corpus, out, resume=True, log=messages.append)
    assert card.stat().st_mtime_ns == before
    assert "already contains" in messages[-1]
    train(settings(max_steps=4), corpus, out, resume=True)
    assert "CC0" in card.read_text()
    assert "| training | 4 steps," in card.read_text()


def test_foreign_file_in_the_model_directory_is_reported_before_training(
    corpus: Corpus, out: Path
) -> None:
    train(settings(max_steps=2), corpus, out)
    (out / "model" / "LICENSE").write_text("MIT")
    with pytest.raises(OutputError, match="LICENSE"):
        train(settings(max_steps=4), corpus, out, resume=True)
    newest = checkpoint.newest(out)
    assert newest is not None
    assert newest.name == "step-00000002"
