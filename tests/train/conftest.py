"""A small prepared corpus, and settings that train on it in seconds."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from elmokit.data.corpus import Corpus
from elmokit.data.layout import PrepareSettings
from elmokit.data.prepare import prepare
from elmokit.settings import with_settings
from elmokit.train.config import RunConfig, run_preset
from tests.data.texts import random_text

SETTINGS = [
    "lstm.dim=24",
    "lstm.projection_dim=16",
    "char_cnn.embedding_dim=4",
    "char_cnn.filters=[[1,8],[2,8],[3,16]]",
    "step.rows=4",
    "step.steps=7",
    "step.negatives=20",
    "optimizer.learning_rate=0.01",
    "optimizer.warmup=5",
]


def settings(**changes: Any) -> RunConfig:
    config = with_settings(run_preset("toy"), SETTINGS)
    changes = {"log_every": 1, "evaluate_every": 0, "checkpoint_every": 0, **changes}
    return dataclasses.replace(config, **changes)


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "text.txt").write_text(random_text(60), "utf-8")
    prepare([folder / "text.txt"], folder / "data", PrepareSettings(valid=0.1), workers=1)
    return Corpus.open(folder / "data")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "run"
