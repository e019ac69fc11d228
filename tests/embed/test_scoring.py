"""Scores equal those of a slow implementation: one probability at a time, in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError
from elmokit.model.lstm import LstmState
from elmokit.model.softmax import LMHead
from elmokit.sources.modeldir import ModelParts
from elmokit.text.vocab import Vocabulary
from tests.conftest import TINY, random_bilm
from tests.sources.models import make_parts as other_parts

# Specials do not come first, as in the vocabularies of bilm-tf, so indices must be looked up.
WORDS = ("the", "</S>", "<S>", "<UNK>", "book", "I", "read", ".", "a", "letter", "dog")
SENTENCES = [
    ["I", "read", "the", "book", "."],
    ["the", "unheard", "dog"],
    [],
    ["a"],
    ["I", "<S>", "</S>", "read"],  # words that look like sentence boundaries
    ["dog"] * 30,
]


def make_parts(*, double: bool = False, head: bool = True) -> ModelParts:
    bilm = random_bilm(TINY)
    torch.manual_seed(1)
    parts = ModelParts(bilm, vocabulary=Vocabulary(WORDS), source="tiny")
    if head:
        parts.head = LMHead(len(WORDS), 10)
        torch.nn.init.normal_(parts.head.bias)
    parts.warm = LstmState(torch.randn(2, 2, 1, 24), torch.randn(2, 2, 1, 10))
    if double:
        parts.bilm.double()
        if parts.head is not None:
            parts.head.double()
        parts.warm = LstmState(*(part.double() for part in parts.warm))
    return parts


@pytest.fixture
def elmo() -> ElmoModel:
    return ElmoModel(make_parts(), device="cpu")


@pytest.fixture
def exact_elmo() -> ElmoModel:
    return ElmoModel(make_parts(double=True), device="cpu")


def slow_scores(elmo: ElmoModel, words: list[str], direction: int, state: str) -> list[float]:
    """Return log p of `w1 .. wn </S>` or of `wn .. w1 <S>`."""
    assert elmo.head is not None
    stack = (elmo.bilm.forward_lm, elmo.bilm.backward_lm)[direction]
    words = ["<UNK>" if word in ("<S>", "</S>", "<UNK>") else word for word in words]
    inputs = ["<S>", *words] if direction == 0 else ["</S>", *words[::-1]]
    targets = [*words, "</S>"] if direction == 0 else [*words[::-1], "<S>"]
    cell, hidden = torch.zeros(2, 1, 24).double(), torch.zeros(2, 1, 10).double()
    if state == "warm":
        assert elmo.warm is not None
        cell, hidden = elmo.warm.cell[direction], elmo.warm.hidden[direction]
    found = []
    for read, said in zip(inputs, targets, strict=True):
        x = elmo.bilm.encoder(torch.from_numpy(elmo._encoder_ids([read])))
        outputs, cell, hidden = stack(x, [1], cell, hidden)
        logits = elmo.head.weight @ outputs[-1][0] + elmo.head.bias
        row = WORDS.index(said) if said in WORDS else WORDS.index("<UNK>")
        found.append((logits[row] - torch.logsumexp(logits, 0)).item())
    return found


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_scores_equal_the_slow_implementation(exact_elmo: ElmoModel, state: str) -> None:
    with torch.no_grad():
        for words, score in zip(SENTENCES, exact_elmo.score(SENTENCES, state), strict=True):
            ahead = slow_scores(exact_elmo, words, 0, state)
            back = slow_scores(exact_elmo, words, 1, state)
            assert [*score.forward, score.end] == pytest.approx(ahead, abs=1e-9)
            assert [*score.backward[::-1], score.begin] == pytest.approx(back, abs=1e-9)
            assert score.tokens == tuple(words)
            assert score.forward_perplexity == pytest.approx(math.exp(-np.mean(ahead)))
            assert score.backward_perplexity == pytest.approx(math.exp(-np.mean(back)))
            assert score.perplexity == pytest.approx(math.exp(-np.mean([*ahead, *back])))
            assert score.state == state


def test_unknown_words_are_listed_and_excluded_from_the_known_perplexity(elmo: ElmoModel) -> None:
    scores = elmo.score(SENTENCES)
    assert [sum(score.unknown) for score in scores] == [0, 1, 0, 0, 2, 0]
    assert scores[0].known_perplexity == pytest.approx(scores[0].perplexity)
    one = scores[1]
    assert one.unknown == (False, True, False)
    known = [one.forward[0], one.forward[2], one.end, one.backward[0], one.backward[2], one.begin]
    assert one.known_perplexity == pytest.approx(math.exp(-np.mean(known)))


def test_scores_do_not_depend_on_the_batch(exact_elmo: ElmoModel) -> None:
    together = exact_elmo.score(SENTENCES)
    for words, score in zip(SENTENCES, together, strict=True):
        alone = exact_elmo.score([words])[0]
        assert alone.forward == pytest.approx(score.forward, abs=1e-11)
        assert alone.backward == pytest.approx(score.backward, abs=1e-11)
    exact_elmo.batch_tokens = 8
    for before, after in zip(together, exact_elmo.score(SENTENCES), strict=True):
        assert before.forward == pytest.approx(after.forward, abs=1e-11)
        assert before.backward == pytest.approx(after.backward, abs=1e-11)


def test_string_is_tokenized_and_gives_one_score(elmo: ElmoModel) -> None:
    assert elmo.score("I read the book.") == elmo.score([SENTENCES[0]])[0]
    assert elmo.score(["I read the book.", "a"])[0].tokens == tuple(SENTENCES[0])
    assert elmo.score([]) == []


def test_table_lists_tokens_and_repr_shows_the_perplexity(elmo: ElmoModel) -> None:
    score = elmo.score("the unheard dog")
    lines = str(score).splitlines()
    assert [line.split()[0] for line in lines] == [
        "log",
        "<S>",
        "the",
        "unheard",
        "dog",
        "</S>",
        "perplexity",
    ]
    assert lines[3].endswith("<UNK>")
    assert f"perplexity {score.perplexity:.2f}" in repr(score)


def test_error_for_a_model_without_a_head_says_what_to_do() -> None:
    elmo = ElmoModel(make_parts(head=False), device="cpu")
    for ask in (lambda: elmo.score("a"), lambda: elmo.substitutes("a [dog]")):
        with pytest.raises(ConfigError, match=r"published weights.*elmo finetune"):
            ask()


def test_invalid_input_is_identified(elmo: ElmoModel) -> None:
    with pytest.raises(ConfigError, match=r"'carry'.*processed independently"):
        elmo.score("a", "carry")
    with pytest.raises(DataError, match="list of sentences, got int"):
        elmo.score(3)  # type: ignore[call-overload]
    with pytest.raises(DataError, match="Token 1 of sentence 0 has type int"):
        elmo.score([["a", 3]])  # type: ignore[list-item]
    elmo.warm = None
    with pytest.raises(ConfigError, match="elmo warm"):
        elmo.score("a", "warm")


def test_scoring_needs_bounded_memory(elmo: ElmoModel, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = elmo.score([SENTENCES[5]])[0]
    monkeypatch.setattr("elmokit.model.softmax._BLOCK", (3, 2))
    assert elmo.score([SENTENCES[5]])[0].forward == pytest.approx(expected.forward, abs=1e-5)


def test_word_input_models_can_score() -> None:
    elmo = ElmoModel(other_parts("words", full=True), device="cpu")
    score = elmo.score([["the", "book", "unheard"]])[0]
    assert score.unknown == (False, False, True)
    assert len(elmo.substitutes("the [book]", 5).combined) == 2
