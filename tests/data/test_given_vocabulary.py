"""Text prepared with the vocabulary of an existing model (`elmo prepare --vocab`)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from elmokit.cli.prepare import prepare as command
from elmokit.data import tokenizing
from elmokit.data.corpus import Corpus
from elmokit.data.layout import PrepareSettings
from elmokit.data.prepare import prepare, read_vocabulary
from elmokit.errors import ConfigError, DataError
from elmokit.model.chars import char_ids_table
from elmokit.text.vocab import SPECIALS, Vocabulary
from elmokit.train.batches import make_batch, needed_columns
from tests.data.texts import documents_of, files_in, random_text, stored_documents

# Neither sorted by count nor alphabetically, and "absent" does not occur in the text.
WORDS = (*SPECIALS, "dog", "absent", "the", "of")


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(random_text(80), "utf-8")
    return tmp_path / "text.txt"


def prepared(text: Path, output: Path, words: tuple[str, ...] = WORDS, **given: Any) -> Corpus:
    settings = PrepareSettings(**given.pop("settings", {"valid": 0.1}))
    prepare([text], output, settings, workers=1, vocabulary=Vocabulary(words), **given)
    return Corpus.open(output)


def test_given_words_keep_their_order_and_others_follow_by_count(
    text: Path, tmp_path: Path
) -> None:
    corpus = prepared(text, tmp_path / "data")
    assert corpus.vocabulary.words == WORDS
    assert corpus.n_words == len(WORDS)
    assert tuple(corpus.words(np.arange(len(WORDS)))) == WORDS
    assert corpus.counts[WORDS.index("absent")] == 0
    assert corpus.counts[WORDS.index("the")] > corpus.counts[WORDS.index("dog")] > 0
    assert (np.diff(corpus.counts[len(WORDS) :]) <= 0).all()
    expected = np.bincount(corpus.tokens(), minlength=corpus.n_types)
    assert corpus.counts.tolist() == expected.tolist()
    whole = prepared(text, tmp_path / "whole", settings={})
    assert stored_documents(whole) == documents_of([text])


def test_other_words_are_unknown_as_targets_but_have_spellings(text: Path, tmp_path: Path) -> None:
    from elmokit.data.streams import Streams

    corpus = prepared(text, tmp_path / "data")
    (cat,) = (i for i in range(corpus.n_types) if corpus.words([i]) == ["cat"])
    assert cat >= corpus.n_words
    assert np.array_equal(corpus.chars[cat], char_ids_table(["cat"])[0])
    stream = next(Streams(corpus.tokens(), corpus.documents(), rows=4, steps=50))
    batch = make_batch(stream, needed_columns(corpus.chars, 3), corpus.n_words)
    assert cat in stream.targets
    assert cat in batch.types
    assert (batch.targets[stream.targets == cat] == SPECIALS.index("<UNK>")).all()
    assert corpus.meta.splits["train"].unknown_rate > 0.3


def test_vocabulary_can_be_larger_than_that_of_the_text(text: Path, tmp_path: Path) -> None:
    many = (*SPECIALS, *(f"v{i}" for i in range(70_000)), "the")
    corpus = prepared(text, tmp_path / "data", many)
    assert corpus.n_words == len(many)
    assert corpus.counts[len(many) - 1] > 0


def test_bytes_do_not_depend_on_blocks_or_processes(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(text, tmp_path / "a")
    vocabulary = Vocabulary(WORDS)
    settings = PrepareSettings(valid=0.1)
    for name, workers, size in (("b", 2, 300), ("c", 1, 100)):
        monkeypatch.setattr(tokenizing, "BLOCK_CHARACTERS", size)
        prepare([text], tmp_path / name, settings, workers=workers, vocabulary=vocabulary)
        assert files_in(tmp_path / name) == files_in(tmp_path / "a")


def test_another_vocabulary_changes_the_fingerprint(text: Path, tmp_path: Path) -> None:
    one = prepared(text, tmp_path / "a")
    other = prepared(text, tmp_path / "b", (*WORDS[:3], *WORDS[:2:-1]))
    assert one.fingerprint != other.fingerprint


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("<S>", "</S>", "a"), r"The vocabulary \(3 words\) does not contain <UNK>"),
        (("</S>", "<S>", "<UNK>", "a"), "starts with </S> <S> <UNK>: expected <S> </S> <UNK>"),
        (SPECIALS, "contains no words"),
    ],
)
def test_invalid_vocabulary_is_rejected(
    text: Path, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        prepared(text, tmp_path / "data", words)
    assert not (tmp_path / "data").exists()


def test_vocabulary_cannot_be_combined_with_a_count_limit(text: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--min-count, --max-vocab"):
        prepared(text, tmp_path / "data", settings={"max_vocab": 5})


def test_command_accepts_a_file_or_a_directory(text: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(command)
    Vocabulary(WORDS).save(tmp_path / "vocab.txt")
    for name, source in (("a", tmp_path / "vocab.txt"), ("b", tmp_path)):
        arguments = [str(text), "-o", str(tmp_path / name), "--vocab", str(source)]
        result = CliRunner().invoke(app, [*arguments, "--workers", "1"])
        assert result.exit_code == 0, result.output
        assert Corpus.open(tmp_path / name).vocabulary.words == WORDS
    arguments = [str(text), "-o", str(tmp_path / "c"), "--vocab", "english", "--workers", "1"]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    assert len(Corpus.open(tmp_path / "c").vocabulary) == 150_000
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"vocab\.txt does not exist"):
        read_vocabulary(tmp_path / "empty")
    with pytest.raises(DataError):
        read_vocabulary(tmp_path / "missing.txt")
