"""AllenNLP's own test model, what AllenNLP computed with it, and a random model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from elmokit.convert import bilm_hdf5
from tests.conftest import TINY, random_bilm


class Files(NamedTuple):
    options: Path
    weights: Path


@pytest.fixture(scope="session")
def recorded() -> dict[str, Any]:
    """Load what AllenNLP computed; the file describes how it was recorded."""
    values: dict[str, Any] = json.loads(
        (Path(__file__).parent / "allennlp_recorded.json").read_text("utf-8")
    )
    return values


@pytest.fixture(scope="session")
def theirs(shared: Path) -> Files:
    folder = shared / "fixtures/allenai-allennlp/test_fixtures/elmo"
    return Files(folder / "options.json", folder / "lm_weights.hdf5")


@pytest.fixture(scope="session")
def sentences(theirs: Files) -> list[list[str]]:
    """Return the 30 sentences of AllenNLP's fixture, with numbers."""
    groups = json.loads(theirs.options.with_name("sentences.json").read_text("utf-8"))
    return [sentence.split() for group in groups for sentence in group]


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Write a random model in the file format of the original systems."""
    folder = tmp_path_factory.mktemp("tiny")
    files = Files(folder / "options.json", folder / "weights.hdf5")
    bilm_hdf5.write(random_bilm(TINY), *files)
    return files
