"""A text with few distinct words, and its index."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import elmokit
from elmokit.embed.model import ElmoModel
from elmokit.search.build import IndexSettings, build_index
from elmokit.search.index import TokenIndex
from elmokit.text.marked import MarkedWord
from tests.conftest import TINY_MODEL

WORDS = "the cat Play play plays bank river read a dog on of . ,".split()
QUERIES = [
    MarkedWord(("the", "play", "on", "a", "bank"), 1),
    MarkedWord(("a", "cat", "."), 1),
    MarkedWord(("Play", "on", "."), 0),
]
TOKENIZED = IndexSettings(tokenized=True, chunk_bytes=1000)


@pytest.fixture(scope="module")
def elmo() -> ElmoModel:
    return elmokit.load(TINY_MODEL, device="cpu")


@pytest.fixture(scope="module")
def sentences() -> list[list[str]]:
    draw = random.Random(0)
    text = [draw.choices(WORDS, k=draw.randint(0, 9)) for _ in range(120)]
    return [*text, ["the", "play", "on", "a", "bank"], *text[:30]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, sentences: list[list[str]]) -> Path:
    path = tmp_path_factory.mktemp("index")
    (path / "text.txt").write_text("".join(" ".join(words) + "\n" for words in sentences))
    return path


@pytest.fixture(scope="module")
def index(elmo: ElmoModel, folder: Path) -> TokenIndex:
    build_index(elmo, [folder / "text.txt"], folder / "index", TOKENIZED)
    return TokenIndex.open(folder / "index")


def rows(index: TokenIndex) -> dict[str, list[dict[str, Any]]]:
    """Return the complete contents of an index."""
    return {name: table.to_table().to_pylist() for name, table in index.tables.items()}
