from __future__ import annotations

import bz2
import errno
import gzip
import json
import lzma
import re
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from elmokit.data import tokenizing
from elmokit.data.corpus import Corpus
from elmokit.data.layout import PrepareSettings
from elmokit.data.prepare import Summary, prepare
from elmokit.data.reading import LineSplitter
from elmokit.data.tokenizing import TokenizedBlock, tokenize_block
from elmokit.errors import ConfigError, DataError, ElmoWarning, OutputError
from elmokit.model.chars import char_ids_table, is_truncated
from elmokit.text.vocab import SPECIALS
from tests.data.texts import SMALL, count, documents_of, files_in, random_text, stored_documents

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_text(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, "utf-8")
        return tmp_path / name

    return write_text


@pytest.fixture
def text(write: Write) -> Path:
    return write("text.txt", random_text(120))


def run(
    files: list[Path],
    output: Path,
    *,
    workers: int = 1,
    block_characters: int = tokenizing.BLOCK_CHARACTERS,
    **given: Any,
) -> Summary:
    names = set(PrepareSettings.__dataclass_fields__)
    settings = PrepareSettings(**{key: given.pop(key) for key in names & given.keys()})
    with mock.patch.object(tokenizing, "BLOCK_CHARACTERS", block_characters):
        return prepare(files, output, settings, workers=workers, **given)


def corpus_of(files: list[Path], output: Path, **given: Any) -> Corpus:
    run(files, output, **given)
    return Corpus.open(output)


@pytest.mark.parametrize("block_characters", [60, 700, 1 << 20])
def test_every_word_is_stored_in_its_position(
    text: Path, write: Write, tmp_path: Path, block_characters: int
) -> None:
    files = [text, write("small.txt", SMALL)]
    corpus = corpus_of(files, tmp_path / "data", block_characters=block_characters)
    assert stored_documents(corpus) == documents_of(files)


@pytest.mark.parametrize("mode", ["one_sentence_per_line", "tokenized"])
def test_settings_control_how_text_is_read(text: Path, tmp_path: Path, mode: str) -> None:
    corpus = corpus_of([text], tmp_path / "data", **{mode: True})
    assert stored_documents(corpus) == documents_of([text], LineSplitter(**{mode: True}))


def test_words_are_sorted_by_count_and_then_alphabetically(text: Path, tmp_path: Path) -> None:
    corpus = corpus_of([text], tmp_path / "data", block_characters=500)
    counted = count(documents_of([text]))
    expected = sorted(counted, key=lambda word: (-counted[word], word))
    everything = corpus.words(np.arange(corpus.n_types))
    assert everything == [*SPECIALS, *expected]
    assert corpus.counts[3:].tolist() == [counted[word] for word in expected]
    assert corpus.counts.tolist() == np.bincount(corpus.tokens()).tolist()
    vocabulary = [word for word in expected if counted[word] >= 3]
    assert corpus.vocabulary.words == (*SPECIALS, *vocabulary)
    assert 0 < len(vocabulary) < len(expected)


def test_spellings_equal_the_character_ids_of_the_model(text: Path, tmp_path: Path) -> None:
    corpus = corpus_of([text], tmp_path / "data", max_characters=20)
    words = corpus.words(np.arange(corpus.n_types))
    assert np.array_equal(corpus.chars, char_ids_table(words, 20))
    assert corpus.max_characters == 20


def test_meta_counts_match_the_data(text: Path, tmp_path: Path) -> None:
    meta = corpus_of([text], tmp_path / "data", min_count=5, max_characters=12).meta
    documents = documents_of([text])
    counted = count(documents)
    train = meta.splits["train"]
    assert train.documents == 120
    assert train.sentences == sum(map(len, documents))
    assert train.tokens == counted.total()
    assert train.types == len(counted) == meta.n_types - 3
    unknown = sum(n for n in counted.values() if n < 5)
    assert (train.unknown_tokens, train.unknown_rate) == (unknown, unknown / counted.total())
    cut = sum(n for word, n in counted.items() if is_truncated(word, 12))
    assert train.truncated_tokens == cut > 0
    assert meta.n_words == 3 + sum(n >= 5 for n in counted.values())


@pytest.mark.parametrize(("max_vocab", "expected"), [(4, 4), (10, 10), (10**6, None)])
def test_vocabulary_limit_does_not_affect_inputs(
    text: Path, tmp_path: Path, max_vocab: int, expected: int | None
) -> None:
    corpus = corpus_of([text], tmp_path / "data", min_count=1, max_vocab=max_vocab)
    assert corpus.n_words == len(corpus.vocabulary) == (expected or corpus.n_types)
    assert corpus.n_types == 3 + len(count(documents_of([text])))
    assert stored_documents(corpus) == documents_of([text])
    targets = np.where(corpus.tokens() < corpus.n_words, corpus.tokens(), 2)
    assert np.array_equal(corpus.target_counts[1:], np.bincount(targets)[1:])
    assert corpus.target_counts[0] == corpus.target_counts[1]


def test_bytes_do_not_depend_on_the_number_of_processes(text: Path, tmp_path: Path) -> None:
    one = run([text], tmp_path / "one", workers=1, valid=0.1, block_characters=5_000)
    two = run([text], tmp_path / "two", workers=2, valid=0.1, block_characters=500)
    assert files_in(tmp_path / "one") == files_in(tmp_path / "two")
    assert one.meta == two.meta
    assert (one.workers, two.workers) == (1, 2)


@pytest.mark.parametrize(("suffix", "module"), [(".gz", gzip), (".xz", lzma), (".bz2", bz2)])
def test_compressed_text_gives_the_same_bytes(
    text: Path, tmp_path: Path, suffix: str, module: Any
) -> None:
    packed = tmp_path / f"other-name{suffix}"
    packed.write_bytes(module.compress(text.read_bytes()))
    run([text], tmp_path / "plain")
    run([packed], tmp_path / "packed")
    assert files_in(tmp_path / "plain") == files_in(tmp_path / "packed")


def test_document_may_be_larger_than_a_block(write: Write, tmp_path: Path) -> None:
    whole = write("whole.txt", re.sub("\n+", "\n", random_text(60)))
    corpus = corpus_of([whole], tmp_path / "data", block_characters=300)
    assert corpus.documents().tolist() == [0, len(corpus.tokens())]
    assert stored_documents(corpus) == documents_of([whole])


@pytest.mark.parametrize("block_characters", [400, 1 << 20])
def test_whole_documents_are_held_out(text: Path, tmp_path: Path, block_characters: int) -> None:
    corpus = corpus_of([text], tmp_path / "data", valid=12, block_characters=block_characters)
    documents = documents_of([text])
    train, valid = stored_documents(corpus), stored_documents(corpus, "valid")
    assert len(valid) == 12
    # Both splits keep the order of the text, so that they can be merged back.
    rest = iter(train)
    held = iter(valid)
    ahead = next(held)
    for document in documents:
        if document == ahead:
            ahead = next(held, [])
        else:
            assert document == next(rest)
    assert next(rest, None) is None
    assert ahead == []


def test_held_out_words_are_not_counted(text: Path, tmp_path: Path) -> None:
    corpus = corpus_of([text], tmp_path / "data", valid=0.2)
    counted = count(stored_documents(corpus))
    words = corpus.words(np.arange(3, corpus.n_types))
    assert corpus.counts[3:].tolist() == [counted[word] for word in words]
    assert words == sorted(words, key=lambda word: (-counted[word], word))
    only_valid = set(count(stored_documents(corpus, "valid"))) - set(counted)
    assert set(words[-len(only_valid) :]) == only_valid
    assert (corpus.counts[-len(only_valid) :] == 0).all()
    valid = corpus.meta.splits["valid"]
    assert valid.unknown_tokens == (corpus.tokens("valid") >= corpus.n_words).sum()


def test_another_seed_holds_out_other_documents(text: Path, tmp_path: Path) -> None:
    held = [
        stored_documents(corpus_of([text], tmp_path / f"{seed}", valid=10, seed=seed), "valid")
        for seed in (1, 2)
    ]
    assert held[0] != held[1]


def test_files_can_be_held_out(text: Path, write: Write, tmp_path: Path) -> None:
    other = write("other.txt", SMALL)
    corpus = corpus_of([text], tmp_path / "data", valid_files=[other], block_characters=900)
    alone = corpus_of([text], tmp_path / "alone")
    assert stored_documents(corpus, "valid") == documents_of([other])
    assert stored_documents(corpus) == documents_of([text])
    # The training split is the same as without the held-out file.
    assert corpus.vocabulary.words == alone.vocabulary.words
    assert np.array_equal(corpus.tokens(), alone.tokens())
    assert np.array_equal(corpus.counts[: alone.n_types], alone.counts)


def test_words_that_look_like_specials_are_unknown_words(write: Write, tmp_path: Path) -> None:
    marked = write("marked.txt", "<S> a b </S>\n<S> a <UNK> a !!!MAXTERMID <unk> </S>\n")
    with pytest.warns(ElmoWarning, match="6 occurrences"):
        run([marked], tmp_path / "data", tokenized=True, min_count=1)
    corpus = Corpus.open(tmp_path / "data")
    assert corpus.vocabulary.words == (*SPECIALS, "a", "<unk>", "b")
    assert corpus.tokens().tolist() == [2, 3, 5, 2, 1, 2, 3, 2, 3, 2, 4, 2, 1]
    train = corpus.meta.splits["train"]
    assert (train.reserved_tokens, train.unknown_tokens, train.sentences) == (6, 6, 2)
    assert train.types == 3


def test_invalid_lines_are_an_error_or_counted(tmp_path: Path) -> None:
    bad = tmp_path / "bad.txt"
    bad.write_bytes(b"a a a\nb \xff b\na b\n\xfe\n")
    with pytest.raises(DataError, match=r"bad\.txt, line 2: byte 3"):
        run([bad], tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.txt"]
    summary = run([bad], tmp_path / "data", skip_bad=True)
    assert summary.meta.skipped_lines == 2
    assert "line 2" in summary.first_skipped
    assert stored_documents(Corpus.open(tmp_path / "data")) == [[["a", "a", "a"], ["a", "b"]]]


def _truncated_gzip(folder: Path) -> Path:
    path = folder / "cut.gz"
    path.write_bytes(gzip.compress(random_text(400).encode())[:-3000])
    return path


def _empty(folder: Path) -> Path:
    path = folder / "empty.txt"
    path.write_text("\n \n")
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (_truncated_gzip, r"cut\.gz is truncated"),
        (_empty, r"empty\.txt: no words"),
        (lambda folder: folder / "lost.txt", "lost.txt does not exist"),
    ],
)
@pytest.mark.parametrize("held_out", [False, True])
def test_invalid_input_leaves_no_files(
    text: Path, tmp_path: Path, make: Callable[[Path], Path], message: str, held_out: bool
) -> None:
    bad = make(tmp_path)
    before = sorted(tmp_path.iterdir())
    files, valid_files = ([text], [bad]) if held_out else ([bad], [])
    with pytest.raises(DataError, match=message):
        run(files, tmp_path / "data", valid_files=valid_files, block_characters=500)
    assert sorted(tmp_path.iterdir()) == before


def test_vocabulary_without_words_is_an_error(write: Write, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a lower --min-count"):
        run([write("short.txt", "every word once")], tmp_path / "data")


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_full_disk_or_interrupt_keeps_the_old_corpus(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    run([text], tmp_path / "data")
    before = files_in(tmp_path / "data")
    calls = Counter[str]()

    def fail_later(text: bytes, splitter: LineSplitter) -> TokenizedBlock:
        calls["block"] += 1
        if calls["block"] == 3:
            raise error
        return tokenize_block(text, splitter)

    monkeypatch.setattr("elmokit.data.tokenizing.tokenize_block", fail_later)
    expected = OutputError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        run([text], tmp_path / "data", overwrite=True, block_characters=500)
    assert calls["block"] == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "text.txt"]
    assert files_in(tmp_path / "data") == before


def test_only_a_prepared_corpus_is_overwritten_and_only_on_request(
    text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "data"
    out.mkdir()  # an empty directory is accepted
    run([text], out)
    with pytest.raises(OutputError, match="--overwrite"):
        run([text], out)
    run([text], out, overwrite=True, min_count=1)
    assert json.loads((out / "meta.json").read_text())["settings"]["min_count"] == 1
    (out / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"prepared corpus \(notes.txt\)"):
        run([text], out, overwrite=True)
    with pytest.raises(OutputError):
        run([text], text, overwrite=True)


@pytest.mark.parametrize(("content", "replaced"), [('{"format": "mine"}', False), ("{", True)])
def test_damaged_corpus_can_be_overwritten_but_not_other_directories(
    text: Path, tmp_path: Path, content: str, replaced: bool
) -> None:
    run([text], tmp_path / "data")
    (tmp_path / "data/meta.json").write_text(content)
    if replaced:
        run([text], tmp_path / "data", overwrite=True)
        Corpus.open(tmp_path / "data")
    else:
        with pytest.raises(OutputError):
            run([text], tmp_path / "data", overwrite=True)


@pytest.mark.parametrize(
    "given",
    [
        {"min_count": 0},
        {"max_vocab": 3},
        {"max_characters": 2},
        {"valid": 0},
        {"valid": 1.0},
        {"valid": 2, "valid_files": ["text.txt"]},
        {"workers": 0},
    ],
)
def test_invalid_settings_are_rejected(text: Path, tmp_path: Path, given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        run([text], tmp_path / "data", **given)


def test_progress_ends_at_the_size_of_the_text(text: Path, tmp_path: Path) -> None:
    seen = []
    summary = run([text], tmp_path / "data", on_progress=seen.append, block_characters=800)
    assert seen[-1].tokens == summary.meta.splits["train"].tokens
    assert seen == sorted(seen)
    assert seen[-1].n_bytes == summary.n_bytes <= text.stat().st_size == seen[-1].total_bytes


def test_plain_text_causes_no_warnings(text: Path, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run([text], tmp_path / "data")
