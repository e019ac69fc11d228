"""One vector per text: `encode` and `similarity`."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
import torch

import elmokit
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError
from tests.conftest import TINY_MODEL

TEXTS = ["Let there be light.", "", "He read it. She sat down, too.", "x"]


@pytest.fixture(scope="module")
def elmo() -> ElmoModel:
    return elmokit.load(TINY_MODEL, device="cpu")


def tokens(elmo: ElmoModel, text: str) -> np.ndarray[Any, Any]:
    parts = elmokit.split_sentences(text)
    return np.concatenate([out.average for out in elmo.embed(parts)])


@pytest.mark.parametrize(("pooling", "pool"), [("mean", np.mean), ("max", np.max)])
def test_all_tokens_of_a_text_are_pooled(elmo: ElmoModel, pooling: str, pool: Any) -> None:
    found = elmo.encode(TEXTS, pooling=pooling)
    assert found.shape == (4, elmo.config.output_dim)
    for row in (0, 2, 3):
        expected = pool(tokens(elmo, TEXTS[row]), axis=0)
        np.testing.assert_allclose(found[row], expected, atol=2e-6)
    assert not found[1].any()


def test_one_string_gives_one_vector(elmo: ElmoModel) -> None:
    np.testing.assert_allclose(elmo.encode(TEXTS[2]), elmo.encode(TEXTS)[2], atol=2e-6)


def test_list_of_tokens_is_one_text(elmo: ElmoModel) -> None:
    found = elmo.encode([["Let", "there", "be", "light", "."]], layer="concat")
    expected = elmo.encode([TEXTS[0]], layer="concat")
    assert found.shape == (1, elmo.config.n_layers * elmo.config.output_dim)
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_vectors_do_not_depend_on_the_batch_size(elmo: ElmoModel) -> None:
    np.testing.assert_array_equal(elmo.encode(TEXTS, batch_size=1), elmo.encode(TEXTS))


def test_vectors_can_be_normalized_and_returned_as_tensors(elmo: ElmoModel) -> None:
    found = elmo.encode(TEXTS, normalize_embeddings=True, convert_to_tensor=True)
    assert isinstance(found, torch.Tensor)
    np.testing.assert_allclose(found.norm(dim=1), [1, 0, 1, 1], atol=1e-6)


def test_progress_is_shown_on_request(elmo: ElmoModel, capsys: pytest.CaptureFixture[str]) -> None:
    elmo.encode(TEXTS)
    assert capsys.readouterr().err == ""
    elmo.encode(TEXTS, show_progress_bar=True)
    assert "4/4" in capsys.readouterr().err


def test_similarity_of_texts_and_of_vectors(elmo: ElmoModel) -> None:
    vectors = elmo.encode(TEXTS)
    found = elmo.similarity(TEXTS, vectors[2])
    assert found.shape == (4, 1)
    np.testing.assert_allclose(found[2], 1, atol=1e-6)
    np.testing.assert_allclose(elmo.similarity(vectors, vectors), elmo.similarity(TEXTS, TEXTS))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layer": "all"}, "Invalid layer 'all'"),
        ({"layer": 9}, "Invalid layer '9'"),
        ({"pooling": "cls"}, "Invalid pooling 'cls'"),
        ({"layer": "mix"}, "mix"),
    ],
)
def test_invalid_options_are_identified(
    elmo: ElmoModel, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        elmo.encode(TEXTS, **options)


@pytest.mark.parametrize("texts", [5, b"x", [5], [b"x"], [["a", 5]]])
def test_invalid_texts_are_identified(elmo: ElmoModel, texts: Any) -> None:
    with pytest.raises(DataError, match=r"expected|Expected"):
        elmo.encode(texts)


def test_option_names_match_sentence_transformers() -> None:
    names = inspect.signature(ElmoModel.encode).parameters
    wanted = {"batch_size", "show_progress_bar", "normalize_embeddings", "convert_to_tensor"}
    assert wanted <= set(names)
