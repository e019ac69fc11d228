"""Words and their vectors: which words have one, which are trained, and saving."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from elmokit.embed.static import load_static
from elmokit.errors import DataError, WeightsError
from elmokit.tasks.batches import TokenBatch
from elmokit.tasks.config import StaticConfig
from elmokit.tasks.words import (
    UNKNOWN_ROW,
    CharCnn,
    TokenEncoder,
    WordTable,
    WordVectors,
)

CPU = torch.device("cpu")


@pytest.fixture
def words(tmp_path: Path) -> WordTable:
    table = {"the": 1, "dog": 2, "Paris": 3, "paris": 4, "oslo": 5, "lima": 6, "rare": 7}
    path = tmp_path / "vectors.txt"
    path.write_text("".join(f"{word} {value} {value} {-value}\n" for word, value in table.items()))
    config = StaticConfig(str(path), words=6)
    training = [["The", "dog", "Xyz", "xyz", "once"], ["Paris"]]
    return WordTable.build(config, load_static(str(path)), training, [["rare", "nowhere"]])


def first(words: WordTable, token: str) -> float:
    [row] = words.rows([token])
    return float(words.vectors[row][0])


def test_words_are_looked_up_as_written_and_then_lowercased(words: WordTable) -> None:
    assert [first(words, w) for w in ("The", "the", "Paris", "PARIS", "Oslo")] == [1, 1, 3, 4, 5]
    assert first(words, "rare") == 7  # not among the most frequent ones, but in the dev set
    assert words.rows(["nowhere", "once", ""]) == [UNKNOWN_ROW] * 3
    assert words.rows(["XYZ"]) != [UNKNOWN_ROW]  # occurs twice: has its own vector
    assert words.n_training == 5  # unknown, the, dog, Paris, xyz


def test_round_trip_of_words(words: WordTable, tmp_path: Path) -> None:
    words.save(tmp_path)
    again = WordTable.load(tmp_path)
    assert again.words == words.words
    assert again.n_training == words.n_training
    assert np.array_equal(again.vectors, words.vectors)
    assert again.digest == words.digest
    (tmp_path / "words.txt").write_text("the\n")
    with pytest.raises(WeightsError):
        WordTable.load(tmp_path)


def test_only_words_of_the_training_data_are_trained(words: WordTable) -> None:
    module = WordVectors(words, trainable=True)
    tokens = TokenBatch.of([["the", "lima"], ["nowhere"]], CPU)
    vectors = module(tokens)
    assert vectors.shape == (2, 2, 3)
    assert vectors[0, 1].tolist() == [6, 6, -6]
    vectors.sum().backward()
    assert module.tuned.grad is not None
    touched = module.tuned.grad.abs().sum(dim=1).nonzero().flatten().tolist()
    assert set(touched) == set(words.rows(["the", "nowhere"]))
    assert set(dict(module.named_parameters())) == {"tuned"}
    assert set(module.state_dict()) == {"tuned"}
    frozen = WordVectors(words, trainable=False)
    assert not any(p.requires_grad for p in frozen.parameters())


def test_words_without_a_table(tmp_path: Path) -> None:
    words = WordTable.build(StaticConfig("none", dim=7), None, [["a", "a", "b"]])
    assert words.vectors.shape == (2, 7)
    words.save(tmp_path)
    assert WordTable.load(tmp_path).vectors.shape == (2, 7)
    with pytest.raises(DataError, match="glove-6b-50d"):
        load_static("glove-50d")


def test_word_dropout_uses_the_unknown_vector_only_in_training(words: WordTable) -> None:
    module = WordVectors(words, trainable=True, word_dropout=1.0)
    tokens = TokenBatch.of([["the", "lima"]], CPU)
    assert torch.equal(module(tokens)[0, 1], module.tuned[UNKNOWN_ROW])
    assert module.eval()(tokens)[0, 1].tolist() == [6, 6, -6]


def test_character_vector_of_a_word_does_not_depend_on_other_words() -> None:
    torch.manual_seed(0)
    chars = CharCnn(dim=4, filters=6, width=3)
    texts = [["a"], ["a", "Donaudampfschifffahrt"], ["a", "x" * 80], ["a", ""]]
    found = [chars(TokenBatch.of([text], CPU))[0, 0] for text in texts]
    for vector in found[1:]:
        assert torch.allclose(vector, found[0], atol=1e-6)
    assert not torch.allclose(found[0], chars(TokenBatch.of([["A"]], CPU))[0, 0])


def test_tokens_have_word_and_character_vectors_or_one_of_them(words: WordTable) -> None:
    tokens = TokenBatch.of([["the", "dog"], []], CPU)
    vectors = WordVectors(words, trainable=True)
    both = TokenEncoder(vectors, char_dim=4, char_filters=6, char_width=3)
    for encoder, dim in ((both, 9), (TokenEncoder(vectors), 3)):
        assert encoder.dim == dim
        assert encoder(tokens).shape == (2, 2, dim)
