"""A tiny language of entities that a tagger can learn perfectly."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from elmokit.embed.layer_cache import LayerCache
from elmokit.embed.loading import load
from elmokit.embed.model import ElmoModel
from elmokit.settings import with_settings
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.ner import Ner
from tests.conftest import TINY_MODEL

PEOPLE = ["Ann", "Bob", "Carla", "Dave"]
PLACES = ["Paris", "Oslo", "Lima"]
VERBS = ["saw", "met", "left"]

SMALL = [
    "static.source=none",
    "static.dim=16",
    "model.char_dim=8",
    "model.char_filters=16",
    "model.hidden=24",
    "model.layers=1",
    "model.dropout=0.1",
    "elmo.dropout=0.1",
    "train.batch_size=8",
    "train.learning_rate=0.01",
    "train.checkpoint_seconds=0",
]


def sentence(draw: random.Random) -> list[tuple[str, str]]:
    """Write a sentence in IOB1: two adjacent entities require a B."""
    rows = [(draw.choice(PEOPLE), "I-PER")]
    if draw.random() < 0.5:
        rows.append((draw.choice(["Smith", "Jones"]), "I-PER"))
    rows.append((draw.choice(VERBS), "O"))
    rows.append((draw.choice(PEOPLE), "I-PER"))
    if draw.random() < 0.3:
        rows.append((draw.choice(PEOPLE), "B-PER"))
    if draw.random() < 0.6:
        rows += [("in", "O"), (draw.choice(PLACES), "I-LOC")]
    return [*rows, (".", "O")]


def write_columns(path: Path, n: int, seed: int) -> Path:
    draw = random.Random(seed)
    blocks = ["-DOCSTART- -X- O\n"]
    for _ in range(n):
        blocks.append("".join(f"{token} x {tag}\n" for token, tag in sentence(draw)))
    path.write_text("\n".join(blocks))
    return path


@pytest.fixture(scope="session")
def elmo() -> ElmoModel:
    return load(TINY_MODEL, device="cpu")


@pytest.fixture
def cache(tmp_path: Path) -> LayerCache:
    return LayerCache(tmp_path / "cache")


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("ner")
    return (
        str(write_columns(folder / "train.txt", 60, 1)),
        str(write_columns(folder / "dev.txt", 20, 2)),
    )


def settings(*changes: str) -> TaskConfig:
    return with_settings(Ner.presets["paper"], [*SMALL, *changes])
