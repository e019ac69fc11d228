"""ELMo as flair's token embeddings: vectors, settings, and the contents of a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elmokit
from elmokit.errors import WeightsError
from tests.conftest import TINY_MODEL

flair: Any = pytest.importorskip("flair", reason="the extra `flair` is not installed")

from flair.data import Sentence  # noqa: E402
from flair.embeddings import StackedEmbeddings  # noqa: E402
from flair.embeddings.base import load_embeddings  # noqa: E402

from elmokit.integrations.flair import ElmoEmbeddings  # noqa: E402

TEXTS = ["The cat sat on the mat .", "Banks lend money ."]


def vectors(embeddings: Any) -> list[np.ndarray[Any, Any]]:
    sentences = [Sentence(text.split()) for text in TEXTS]
    embeddings.embed(sentences)
    return [np.stack([t.embedding.cpu().numpy() for t in s]) for s in sentences]


@pytest.mark.parametrize(
    ("layer", "wanted"),
    [(1, lambda v: v.layers[1]), ("top", lambda v: v.top), ("average", lambda v: v.average)],
)
def test_vectors_equal_embed(layer: str | int, wanted: Any) -> None:
    embeddings = ElmoEmbeddings(str(TINY_MODEL), layer=layer)
    assert embeddings.embedding_length == 32
    elmo = elmokit.load(TINY_MODEL, device="cpu")
    for found, text in zip(vectors(embeddings), TEXTS, strict=True):
        np.testing.assert_allclose(found, wanted(elmo.embed([text.split()])[0]), atol=1e-5)


def test_several_embeddings_can_be_stacked() -> None:
    stacked = StackedEmbeddings(
        [ElmoEmbeddings(str(TINY_MODEL), layer=layer) for layer in ("concat", "top")]
    )
    assert [found.shape for found in vectors(stacked)] == [(7, 4 * 32), (4, 4 * 32)]


def test_saved_embeddings_contain_settings_and_a_fingerprint(tmp_path: Path) -> None:
    embeddings = ElmoEmbeddings(str(TINY_MODEL), layer="mix", mix=[0.5, 0.5, 0.0], gamma=2.0)
    stored = embeddings.save_embeddings(use_state_dict=False)
    again = load_embeddings(stored)
    assert isinstance(again, ElmoEmbeddings)
    for a, b in zip(vectors(again), vectors(embeddings), strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(WeightsError, match="has changed"):
        ElmoEmbeddings.from_params({**embeddings.to_params(), "fingerprint": "0" * 32})
