"""A text of few words, and its index."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import elmokit
from elmokit.embed.model import ElmoModel
from elmokit.search.index import TokenIndex
from elmokit.search.index_build import (
    IndexSettings,
    build_index,
)
from elmokit.text.marked import Marked
from tests.conftest import TINY_MODEL

WORDS = "the cat Play play plays bank river read a dog on of . ,".split()
QUERIES = [
    Marked(("the", "play", "on", "a", "bank"), 1),
    Marked(("a", "cat", "."), 1),
    Marked(("Play", "on", "."), 0),
]
TOKENIZED = IndexSettings(tokenized=True, part_tokens=100)


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


def build(elmo: ElmoModel, folder: Path, name: str, **settings: Any) -> TokenIndex:
    given = IndexSettings(**{"tokenized": True, "part_tokens": 100, **settings})
    if not (folder / name).is_dir():
        build_index(elmo, [folder / "text.txt"], folder / name, given)
    return TokenIndex.open(folder / name)


@pytest.fixture(scope="module")
def index(elmo: ElmoModel, folder: Path) -> TokenIndex:
    return build(elmo, folder, "float16")
