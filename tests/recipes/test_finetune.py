"""The recipe that fine-tunes a biLM on a task's text keeps the best learning rate on dev."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import elmokit
from elmokit.data.corpus import Corpus
from elmokit.data.layout import PrepareSettings
from elmokit.data.prepare import prepare
from elmokit.settings import with_settings
from elmokit.train.config import run_preset
from elmokit.train.loop import train
from tests.recipes.conftest import RunRecipe
from tests.train.conftest import SETTINGS

pytestmark = pytest.mark.slow

TREES = ["(3 (2 It) (4 (2 was) (4 lovely)))", "(1 (2 It) (0 (2 was) (0 awful)))"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A biLM and head trained on these words in another order."""
    folder = tmp_path_factory.mktemp("model")
    text = folder / "text.txt"
    text.write_text("\n\n".join(["lovely was It .\nawful It was ."] * 40) + "\n")
    prepare([text], folder / "data", PrepareSettings(valid=0.1), workers=1)
    config = with_settings(run_preset("toy"), [*SETTINGS, "evaluate_every=0"])
    corpus = Corpus.open(folder / "data")
    return train(dataclasses.replace(config, max_steps=20), corpus, folder / "run").model


def test_best_learning_rate_on_dev_is_kept(
    tmp_path: Path, model: Path, run_recipe: RunRecipe
) -> None:
    data, tuned, runs = tmp_path / "data", tmp_path / "tuned", tmp_path / "runs"
    (data / "sst5").mkdir(parents=True)
    for part in ("train", "dev"):
        (data / "sst5" / f"{part}.txt").write_text("\n".join(TREES * 30) + "\n")
    given = [data, "sst5", "-o", tuned, "--summaries", runs, "--device", "cpu"]
    given += ["--model", model, "--epochs", "90", "--rows", "2", "--rates", "1e-6", "5e-3"]
    run_recipe("tasks/finetune.py", *given)
    record = json.loads((runs / "finetune-sst5.json").read_text())
    after = record["after_by_rate"]
    assert set(after) == {"1e-06", "0.005"}
    assert after["0.005"] < 0.9 * after["1e-06"]
    assert record["settings"] == {"step.rows": 2, "optimizer.learning_rate": 0.005}
    perplexity = record["perplexity"]
    assert round(perplexity["after"]["mean"], 2) == after["0.005"]
    assert perplexity["before"]["mean"] == pytest.approx(after["1e-06"], rel=0.01)
    # Sentences are used once each, without labels.
    assert (tuned / "sst5" / "train.txt").read_text() == "It was lovely\nIt was awful\n"
    assert (tuned / "english-sst5").resolve() == (tuned / "sst5" / "run-0.005" / "model").resolve()
    assert elmokit.load(str(tuned / "english-sst5")).embed(["It was lovely"])
