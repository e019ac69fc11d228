from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from elmokit.data.reading import LineSplitter, check_held_out_files, read_blocks, read_sentences
from elmokit.errors import DataError
from elmokit.text.lines import text_size
from tests.data.texts import SMALL, documents_of


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.txt"
    path.write_text(SMALL, "utf-8")
    return path


def test_lines_are_paragraphs_and_empty_lines_separate_documents(small: Path) -> None:
    assert [[" ".join(words) for words in document] for document in documents_of([small])] == [
        ["Mr. Smith read the book .", "He liked the book !"],
        [
            "The dog ca n't read .",
            "Собака не читает .",
            "狗 不 读 书 。",
            "The dog reads the book .",
        ],
    ]


def test_lines_can_be_sentences(small: Path) -> None:
    documents = documents_of([small], LineSplitter(one_sentence_per_line=True))
    assert [len(document) for document in documents] == [1, 2]
    assert documents[0][0][-5:] == ["He", "liked", "the", "book", "!"]


def test_tokenized_text_is_split_at_whitespace_only(small: Path) -> None:
    documents = documents_of([small], LineSplitter(tokenized=True))
    assert documents[0] == ["Mr. Smith read the book. He liked the book!".split()]


def test_documents_end_with_their_file_and_whitespace_lines_are_empty(tmp_path: Path) -> None:
    for name, text in {"a": "one\n \t \n\ntwo", "b": "three\n", "c": "\n\n", "d": "\nfour"}.items():
        (tmp_path / name).write_text(text)
    files = [tmp_path / name for name in "abcd"]
    assert documents_of(files) == [[["one"]], [["two"]], [["three"]], [["four"]]]


def test_sentences_have_line_numbers(small: Path) -> None:
    last = list(read_sentences([small]))[-1]
    assert (last.document, last.line.path, last.line.number) == (1, str(small), 4)


@pytest.mark.parametrize("characters", [1, 60, 10_000])
def test_blocks_can_end_after_any_line_of_a_document(small: Path, characters: int) -> None:
    blocks = [block.decode() for block in read_blocks([small], characters)]
    lines = [line for block in blocks for line in block.split("\n")]
    assert lines == ["", SMALL.split("\n")[0], "", *SMALL.split("\n")[2:4]]
    assert len(blocks) == {1: 3, 60: 2, 10_000: 1}[characters]


def test_size_of_compressed_text_is_unknown(small: Path, tmp_path: Path) -> None:
    packed = tmp_path / "small.txt.gz"
    packed.write_bytes(gzip.compress(small.read_bytes()))
    assert text_size([small, small]) == 2 * len(SMALL.encode())
    assert text_size([small, packed]) is None
    assert text_size(["-"]) is None


def test_missing_files_are_reported_before_any_is_read(small: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lost\.txt does not exist"):
        check_held_out_files([small, tmp_path / "lost.txt"], [])
    with pytest.raises(DataError):
        check_held_out_files([small], [tmp_path])
    with pytest.raises(DataError):
        check_held_out_files(["-", small], ["-"])


def test_held_out_files_cannot_be_training_files(small: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.txt"
    link.symlink_to(small)
    with pytest.raises(DataError):
        check_held_out_files([small], [link])
