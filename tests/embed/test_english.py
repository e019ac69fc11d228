"""The bundled English models: stable vectors and plausible predictions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.embed.model import ElmoModel
from elmokit.sources.resolve import named_models


def golden_of(name: str) -> list[dict[str, list[str]]]:
    found: list[dict[str, list[str]]] = json.loads(
        Path(__file__).with_name(f"{name}_golden.json").read_text("utf-8")
    )
    return found


GOLDEN = golden_of("english")
# The model in the original size is part of a checkout, but not of the wheel.
ORIGINAL = "english-original"
# Other machines sum float32 in another order; different weights would exceed this by far.
TOLERANCE = 2e-5
DIMENSIONS = 6


@pytest.fixture(scope="module")
def english() -> ElmoModel:
    return elmokit.load(device="cpu")


@pytest.fixture(scope="module")
def original() -> ElmoModel:
    if ORIGINAL not in named_models():
        pytest.skip(f"needs weights/{ORIGINAL} of a checkout")
    return elmokit.load(ORIGINAL, device="cpu")


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda g: g["tokens"][0])
def test_vectors_match_the_stored_vectors(english: ElmoModel, golden: dict[str, list[str]]) -> None:
    check(english, golden)


@pytest.mark.parametrize("golden", golden_of(ORIGINAL), ids=lambda g: g["tokens"][0])
def test_vectors_of_the_original_size_match_the_stored_vectors(
    original: ElmoModel, golden: dict[str, list[str]]
) -> None:
    check(original, golden)


def check(model: ElmoModel, golden: dict[str, list[str]]) -> None:
    layers = model.embed([golden["tokens"]])[0].layers
    half = layers.shape[2] // 2
    found = np.concatenate([layers[..., :DIMENSIONS], layers[..., half : half + DIMENSIONS]], -1)
    np.testing.assert_allclose(found, golden["first"], atol=TOLERANCE)
    np.testing.assert_allclose(np.linalg.norm(layers, axis=-1), golden["norms"], rtol=TOLERANCE)


@pytest.mark.filterwarnings("ignore:precision='fast' is the same as exact")  # on some CPUs
def test_fast_vectors_match_the_stored_vectors(english: ElmoModel) -> None:
    fast = elmokit.load(device="cpu", precision="fast")
    sentences = [golden["tokens"] for golden in GOLDEN]
    for exact, near in zip(english.embed(sentences), fast.embed(sentences), strict=True):
        norms = np.linalg.norm(exact.layers, axis=-1) * np.linalg.norm(near.layers, axis=-1)
        cosines = (exact.layers * near.layers).sum(axis=-1) / norms
        assert cosines.mean(axis=1).min() > 0.9995
        assert cosines.min() > 0.999


def test_bundled_model_is_complete(english: ElmoModel) -> None:
    assert english.head is not None
    assert english.vocabulary is not None
    assert len(english.vocabulary) == 150_000
    assert english.warm is not None
    assert english.metadata["name"] == "english"
    assert english.config.output_dim == 512


def test_shuffled_english_has_higher_perplexity(english: ElmoModel) -> None:
    sentence, shuffled = english.score(["The cat sat on the mat .", "Cat the on mat sat the ."])
    assert sentence.perplexity < 60
    assert shuffled.perplexity > 600


def test_substitutes_fit_the_context_on_both_sides(english: ElmoModel) -> None:
    found = english.substitutes("They walked along the [x] of the river .")
    assert "bank" in [candidate.word for candidate in found.combined[:3]]


SENSES = {
    "play": (
        [
            "The play was performed in London by Shakespeare 's company .",
            "He wrote a play about the king , and the theatre staged it .",
            "The second act of the play is a comedy in verse .",
        ],
        [
            "The children play in the garden every day .",
            "They play football with their friends after school .",
            "He could not play in the last match because of an injury .",
        ],
    ),
    "bank": (
        [
            "She deposited the money in the bank .",
            "The bank gave him a loan of a million dollars .",
            "He works as a manager in a bank in the city .",
        ],
        [
            "They walked along the bank of the river .",
            "The village lies on the left bank of the Rhine .",
            "The boat was tied to the bank of the stream .",
        ],
    ),
}


@pytest.mark.parametrize("word", SENSES)
def test_same_sense_of_a_word_is_more_similar(english: ElmoModel, word: str) -> None:
    both = [english.embed(sentences) for sentences in SENSES[word]]
    for layer in (1, 2):
        a, b = (np.stack([v.word(word)[layer] for v in sense]) for sense in both)
        a, b = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (a, b))
        pairs = [(x @ x.T)[np.triu_indices(len(x), 1)] for x in (a, b)]
        assert np.concatenate(pairs).mean() > (a @ b.T).mean() + 0.03
