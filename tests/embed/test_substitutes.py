"""Substitutes: which context each LM uses, and how the scores are combined."""

from __future__ import annotations

import json

import numpy as np
import pytest

from elmokit.embed.model import ElmoModel
from elmokit.embed.substitutes import Candidate
from elmokit.errors import ConfigError, DataError
from tests.embed.test_scoring import WORDS, make_parts

SENTENCE = "I [read] the book ."
ALL = len(WORDS)


@pytest.fixture
def elmo() -> ElmoModel:
    return ElmoModel(make_parts(double=True), device="cpu")


def by_word(candidates: tuple[Candidate, ...]) -> np.ndarray:
    found = {candidate.word: candidate.probability for candidate in candidates}
    return np.array([found[word] for word in WORDS])


def test_lists_equal_the_scores_of_each_candidate(elmo: ElmoModel) -> None:
    found = elmo.substitutes(SENTENCE, ALL, specials=True)
    forward, backward = by_word(found.forward), by_word(found.backward)
    for probability, word in zip(forward, WORDS, strict=True):
        if not word.startswith("<"):
            score = elmo.score([["I", word, "the", "book", "."]])[0]
            assert np.exp(score.forward[1]) == pytest.approx(probability)
            assert np.exp(score.backward[1]) == pytest.approx(backward[WORDS.index(word)])
    assert forward.sum() == pytest.approx(1)
    assert backward.sum() == pytest.approx(1)


def test_combined_scores_follow_the_documented_formula(elmo: ElmoModel) -> None:
    found = elmo.substitutes(SENTENCE, ALL, specials=True)
    ranks = np.arange(ALL)
    unigram = np.log((ranks + 2) / (ranks + 1)) / np.log(ALL + 1)
    assert unigram.sum() == pytest.approx(1)
    product = by_word(found.forward) * by_word(found.backward) / unigram
    np.testing.assert_allclose(by_word(found.combined), product / product.sum(), rtol=1e-5)


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_forward_list_does_not_depend_on_the_right_context(elmo: ElmoModel, state: str) -> None:
    one = elmo.substitutes("I [read] the book .", state=state)
    other = elmo.substitutes("I [read] a letter to an unheard dog .", state=state)
    assert [c.word for c in one.forward] == [c.word for c in other.forward]
    np.testing.assert_allclose(
        [c.probability for c in one.forward], [c.probability for c in other.forward], rtol=1e-12
    )
    assert one.backward != other.backward
    assert one.combined != other.combined


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_backward_list_does_not_depend_on_the_left_context(elmo: ElmoModel, state: str) -> None:
    one = elmo.substitutes("I [read] the book .", state=state)
    other = elmo.substitutes("the unheard dog [read] the book .", state=state)
    assert [c.word for c in one.backward] == [c.word for c in other.backward]
    np.testing.assert_allclose(
        [c.probability for c in one.backward], [c.probability for c in other.backward], rtol=1e-12
    )
    assert one.forward != other.forward


def test_original_word_does_not_affect_the_result(elmo: ElmoModel) -> None:
    one, other = elmo.substitutes(SENTENCE), elmo.substitutes("I [ate] the book .")
    assert (one.forward, one.backward, one.combined) == (
        other.forward,
        other.backward,
        other.combined,
    )
    assert (one.word, other.word) == ("read", "ate")


def test_substitutes_are_sorted_and_include_specials_only_on_request(elmo: ElmoModel) -> None:
    found = elmo.substitutes(SENTENCE, 100)
    for listed in (found.forward, found.backward, found.combined):
        assert len(listed) == ALL - 3
        assert not {c.word for c in listed} & {"<S>", "</S>", "<UNK>"}
        falling = [c.probability for c in listed]
        assert falling == sorted(falling, reverse=True)
    assert len(elmo.substitutes(SENTENCE, 4).combined) == 4


def test_tokens_with_a_position_equal_a_bracketed_string(elmo: ElmoModel) -> None:
    tokens = ["I", "read", "the", "book", "."]
    assert elmo.substitutes(tokens, position=1) == elmo.substitutes(SENTENCE)


@pytest.mark.parametrize(
    ("text", "tokens", "position"),
    [
        ("[I] read", ["I", "read"], 0),
        ("I read[.]", ["I", "read", "."], 2),
        ("I do[n't] read.", ["I", "do", "n't", "read", "."], 2),
        ("the [ book ] .", ["the", "book", "."], 1),
        ("[book]", ["book"], 0),
    ],
)
def test_bracketed_token_is_found(
    elmo: ElmoModel, text: str, tokens: list[str], position: int
) -> None:
    found = elmo.substitutes(text)
    assert (list(found.tokens), found.position) == (tokens, position)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("I read the book .", r"found 0"),
        ("I [read] the [book] .", r"found 2"),
        ("I [] the book .", "are empty"),
        ("I [ ] the book .", "are empty"),
        ("", r"found 0"),
        ("I [read the] book .", "'read', 'the'"),
        ("I [rea]d the book .", "Tokens at this position: 'read'"),
    ],
)
def test_invalid_brackets_are_errors(elmo: ElmoModel, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        elmo.substitutes(text)


def test_other_invalid_input_is_an_error(elmo: ElmoModel) -> None:
    with pytest.raises(DataError, match="expected 0 to 1"):
        elmo.substitutes(["I", "read"], position=2)
    with pytest.raises(DataError, match="requires the argument position"):
        elmo.substitutes(["I", "read"])
    with pytest.raises(DataError):
        elmo.substitutes(SENTENCE, position=1)
    with pytest.raises(DataError):
        elmo.substitutes([], position=0)
    with pytest.raises(ConfigError, match="Invalid value for k: 0"):
        elmo.substitutes(SENTENCE, 0)


def test_result_prints_as_a_table_and_converts_to_json(elmo: ElmoModel) -> None:
    found = elmo.substitutes(SENTENCE, 3)
    lines = str(found).splitlines()
    assert lines[0] == SENTENCE
    assert lines[1].split() == ["forward", "backward", "combined"]
    assert len(lines) == 5
    assert found.combined[0].word in repr(found)
    values = json.loads(json.dumps(found.to_dict()))
    assert values["combined"][0] == {
        "word": found.combined[0].word,
        "probability": found.combined[0].probability,
    }
