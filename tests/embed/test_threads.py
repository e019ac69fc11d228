"""Threads that share a model: all methods that use the token cache give correct results."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from elmokit.embed.model import ElmoModel
from elmokit.model.bilm import BiLM
from elmokit.model.softmax import LMHead
from elmokit.probes.morphology import layer_0
from elmokit.search.build import build_index
from elmokit.search.index import TokenIndex
from elmokit.sources.modeldir import ModelParts
from elmokit.text.vocab import Vocabulary

WORDS = ["<S>", "</S>", "<UNK>", "I", "read", "the", "book", "a", "dog", "saw", "letter"]
#: Sentences with many words that are not in the cache yet.
SENTENCES = [[f"w{i}x{k}" for k in range(4)] + ["read", "the", f"w{i}"] for i in range(48)]


@pytest.fixture
def switching() -> Iterator[None]:
    """Make threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def new_model(bilm: BiLM) -> ElmoModel:
    torch.manual_seed(1)
    parts = ModelParts(bilm, vocabulary=Vocabulary(WORDS), head=LMHead(len(WORDS), 10))
    elmo = ElmoModel(parts, device="cpu")
    elmo.cache._capacity = 24  # so small that tokens are replaced all the time
    return elmo


def results(elmo: ElmoModel, index: TokenIndex, tokens: list[str]) -> list[Any]:
    """Call all methods that use the token cache, and flatten their results to arrays."""
    marked = " ".join([*tokens[:-1], f"[{tokens[-1]}]"])
    score = elmo.score([tokens])[0]
    expected = elmo.substitutes(marked, k=3)
    near = elmo.neighbors(marked, index, k=3)
    return [
        elmo.embed([tokens])[0].layers,
        np.array([*score.forward, *score.backward]),
        np.array([c.probability for c in (*expected.forward, *expected.backward)]),
        np.array([hit.score for hits in near.by_layer.values() for hit in hits]),
        layer_0(elmo, tokens),
    ]


@pytest.mark.usefixtures("switching")
def test_eight_threads_get_the_same_results_as_one(tiny_bilm: BiLM, tmp_path: Path) -> None:
    pytest.importorskip("lance", reason="the extra 'search' is not installed")
    shared, alone = new_model(tiny_bilm), new_model(tiny_bilm)
    text = tmp_path / "text.txt"
    text.write_text("\n".join(" ".join(tokens) for tokens in SENTENCES[:8]))
    build_index(alone, [text], tmp_path / "index")
    index = TokenIndex.open(tmp_path / "index")
    expected = [results(alone, index, tokens) for tokens in SENTENCES]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            found = pool.map(lambda tokens: results(shared, index, tokens), SENTENCES)
            for one, other in zip(found, expected, strict=True):
                for a, b in zip(one, other, strict=True):
                    np.testing.assert_allclose(a, b, atol=1e-5)
