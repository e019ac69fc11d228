"""Perplexity and warm states of raw text equal those of prepared text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from elmokit.data.corpus import Corpus
from elmokit.data.layout import PrepareSettings
from elmokit.data.prepare import prepare
from elmokit.data.reading import LineSplitter, Sentence, read_sentences
from elmokit.errors import ConfigError, DataError, ElmoWarning
from elmokit.model.bilm import BiLM
from elmokit.model.engine import PlainEngine
from elmokit.model.lstm import LstmState
from elmokit.model.scoring import Scorer
from elmokit.model.softmax import LMHead
from elmokit.text.lines import Line
from elmokit.text.vocab import Vocabulary
from elmokit.train.evaluate import Perplexity, evaluate, make_encoder, make_text_types
from elmokit.train.text import evaluate_text, group_sentences
from elmokit.train.warm import average_state, warm_state_of_text
from tests.conftest import TINY, random_bilm
from tests.data.texts import random_text

STATES = ("carry", "reset", "warm")
ODD = "\n\nIt is <S> and </S> and <UNK> in one !!!MAXTERMID line.\n\nunheard-of naïveté!\n"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Corpus, Path]:
    """Return the text in both forms: the valid split of a corpus, and its file."""
    folder = tmp_path_factory.mktemp("text")
    (folder / "train.txt").write_text(random_text(40), "utf-8")
    (folder / "valid.txt").write_text(random_text(12, seed=1) + ODD, "utf-8")
    reading = PrepareSettings(tokenized=True)  # keeps "<S>" as one word
    with pytest.warns(ElmoWarning, match="special symbols"):
        prepare(
            [folder / "train.txt"],
            folder / "data",
            reading,
            valid_files=[folder / "valid.txt"],
            workers=1,
        )
    return Corpus.open(folder / "data"), folder / "valid.txt"


@pytest.fixture(scope="module")
def model(prepared: tuple[Corpus, Path]) -> tuple[BiLM, LMHead, LstmState]:
    torch.manual_seed(0)
    warm = LstmState(torch.randn(2, 2, 1, 24).double(), torch.randn(2, 2, 1, 10).double())
    return random_bilm(TINY).double(), LMHead(prepared[0].n_words, 10).double(), warm


def sentences(path: Path) -> list[Sentence]:
    return list(read_sentences([path], LineSplitter(tokenized=True)))


def assert_same(found: Perplexity, expected: Perplexity) -> None:
    one, other = found.to_dict(), expected.to_dict()
    assert one.pop("state") == other.pop("state")
    assert one == pytest.approx(other, rel=1e-9)


def scorer_of(bilm: BiLM, head: LMHead) -> Scorer:
    return Scorer(PlainEngine(bilm), bilm.config.lstm, head, torch.device("cpu"))


def made_up(*documents: str) -> list[Sentence]:
    return [
        Sentence(i, line.split(), Line("-", 1, line))
        for i, text in enumerate(documents)
        for line in text.split("\n")
    ]


@pytest.mark.parametrize("group_tokens", [1, 100, 1 << 17])
def test_raw_text_has_the_perplexity_of_prepared_text(
    prepared: tuple[Corpus, Path],
    model: tuple[BiLM, LMHead, LstmState],
    group_tokens: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("elmokit.train.text._GROUP_TOKENS", group_tokens)
    corpus, path = prepared
    bilm, head, warm = model
    text = iter(sentences(path))
    found = evaluate_text(
        bilm, scorer_of(bilm, head), corpus.vocabulary, text, states=STATES, warm=warm
    )
    for state, figure in zip(STATES, found, strict=True):
        engine = PlainEngine(bilm)
        expected = evaluate(
            scorer_of(bilm, head),
            make_text_types(make_encoder(engine, corpus.chars), corpus.n_words),
            corpus.tokens("valid"),
            corpus.documents("valid"),
            state=state,
            warm=warm,
        )
        assert_same(figure, expected)
        assert figure.unknown > 4


def test_each_state_alone_gives_the_same_result_as_together(
    prepared: tuple[Corpus, Path],
    model: tuple[BiLM, LMHead, LstmState],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("elmokit.train.text._GROUP_TOKENS", 7)  # splits documents, without carry
    (corpus, path), (bilm, head, warm) = prepared, model
    together = evaluate_text(
        bilm, scorer_of(bilm, head), corpus.vocabulary, sentences(path), states=STATES, warm=warm
    )
    for state, expected in zip(STATES, together, strict=True):
        (found,) = evaluate_text(
            bilm,
            scorer_of(bilm, head),
            corpus.vocabulary,
            sentences(path),
            states=[state],
            warm=warm,
        )
        assert_same(found, expected)


def test_groups_contain_whole_documents_and_discard_unknown_words() -> None:
    vocabulary = Vocabulary(["<S>", "</S>", "<UNK>", "a"])
    text = made_up("a x y\nx", "z", "x a")
    groups = list(group_sentences(text, vocabulary, 2))
    assert [group.tokens.tolist() for group in groups] == [[3, 4, 5, 1, 4, 1], [4, 1], [4, 3, 1]]
    assert [group.words[4:] for group in groups] == [["x", "y"], ["z"], ["x"]]
    pieces = list(group_sentences(text, vocabulary, 2, whole_documents=False))
    assert [len(group.tokens) for group in pieces] == [4, 2, 2, 3]
    (whole,) = group_sentences(text, None, 1000)
    assert whole.documents.tolist() == [0, 6, 8, 11]


def test_invalid_text_and_vocabularies_are_rejected(model: tuple[BiLM, LMHead, LstmState]) -> None:
    bilm, head, _ = model
    with pytest.raises(DataError):
        evaluate_text(bilm, scorer_of(bilm, head), Vocabulary(["<S>", "</S>", "<UNK>"]), [])
    with pytest.raises(ConfigError):
        evaluate_text(
            bilm, scorer_of(bilm, head), Vocabulary(["</S>", "<S>", "<UNK>"]), made_up("a")
        )
    with pytest.raises(DataError):
        evaluate_text(bilm, scorer_of(bilm, head), Vocabulary(["a"]), made_up("a"))


def test_warm_state_of_raw_text_equals_that_of_prepared_text(
    prepared: tuple[Corpus, Path], model: tuple[BiLM, LMHead, LstmState]
) -> None:
    (corpus, path), (bilm, _, _) = prepared, model
    read: list[tuple[int, int]] = []
    expected = average_state(
        bilm,
        make_encoder(PlainEngine(bilm), corpus.chars),
        corpus.tokens("valid"),
        progress=lambda _, done, total: read.append((done, total)),
    )
    (done, total) = read[-1]
    assert done == total
    assert sorted(read) == read
    for vocabulary in (corpus.vocabulary, None):
        found = warm_state_of_text(bilm, vocabulary, sentences(path))
        assert found.sentences == expected.sentences
        assert 0 < found.sentences < len(sentences(path))
        torch.testing.assert_close(found.state, expected.state)


def test_warm_state_reads_only_as_much_text_as_needed(
    prepared: tuple[Corpus, Path], model: tuple[BiLM, LMHead, LstmState]
) -> None:
    text = iter(sentences(prepared[1]))
    found = warm_state_of_text(model[0], None, text, 5)
    assert 5 <= found.sentences <= 10
    assert len(list(text)) == len(sentences(prepared[1])) - 10


def test_part_of_a_long_sentence_is_not_used_as_a_document_end(
    model: tuple[BiLM, LMHead, LstmState],
) -> None:
    # Two rows of 200, and the last </S> is cut off: no sentence end is left, and no word may be
    # used as one.
    found = warm_state_of_text(model[0], None, made_up(" ".join(["a", "b"] * 200)))
    assert found.sentences == 0
    with pytest.raises(DataError):
        warm_state_of_text(model[0], None, [])
