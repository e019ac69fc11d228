"""Fixtures for embedding text to files: the tiny model, a short text and an empty directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from elmokit.embed.model import ElmoModel
from elmokit.sources.modeldir import ModelParts, save
from tests.bulk.runs import TEXT
from tests.conftest import TINY, random_bilm


@pytest.fixture(scope="module")
def elmo() -> ElmoModel:
    return ElmoModel(ModelParts(random_bilm(TINY)), device="cpu")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save the same model as a directory."""
    path = tmp_path_factory.mktemp("models") / "tiny"
    save(ModelParts(random_bilm(TINY)), path)
    return path


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder
