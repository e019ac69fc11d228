from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from elmokit.errors import DataError, OutputError
from elmokit.text.vocab import BEGIN, END, SPECIALS, UNKNOWN, Vocabulary

WORD = st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1)


def write(folder: Path, content: bytes) -> Path:
    path = folder / "vocab.txt"
    path.write_bytes(content)
    return path


def error_of(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        Vocabulary.from_file(path)
    return str(caught.value)


def test_words_keep_their_order() -> None:
    vocabulary = Vocabulary(["<S>", "</S>", "<UNK>", "the"])
    assert len(vocabulary) == 4
    assert vocabulary[3] == "the"
    assert vocabulary.index("the") == 3
    assert list(vocabulary) == [*SPECIALS, "the"] == [BEGIN, END, UNKNOWN, "the"]


def test_unknown_word_has_the_index_of_unk() -> None:
    vocabulary = Vocabulary(["a", "<UNK>"])
    assert vocabulary.index("zebra") == 1
    assert "zebra" not in vocabulary
    assert "a" in vocabulary


def test_unknown_word_without_unk_is_an_error() -> None:
    with pytest.raises(DataError, match="zebra"):
        Vocabulary(["a"]).index("zebra")


def test_case_and_spaces_are_part_of_the_word() -> None:
    vocabulary = Vocabulary(["a", "A", " a", "a b"])
    assert [vocabulary.index(word) for word in ("a", "A", " a", "a b")] == [0, 1, 2, 3]


@given(st.lists(WORD, min_size=1, unique=True))
@example(["a\r", "b"])
@example(["\ufeffa", "\ufeff"])
@example(["\x85", "\u2028", "\x0b", "\x00"])
def test_round_trip(words: list[str]) -> None:
    assume(not all(word.endswith("\r") for word in words) and "!!!MAXTERMID" not in words)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vocab.txt"
        Vocabulary(words).save(path)
        assert list(Vocabulary.from_file(path)) == words


def test_maxtermid_lines_are_skipped(tmp_path: Path) -> None:
    path = write(tmp_path, b"<S>\n!!!MAXTERMID\n</S>\n!!!MAXTERMID\n<UNK>\n")
    assert list(Vocabulary.from_file(path)) == list(SPECIALS)


@pytest.mark.parametrize("raw", [b"a\r\nb\r\n", b"a\r\nb", b"\xef\xbb\xbfa\nb", b"a\nb"])
def test_files_of_other_systems_can_be_read(tmp_path: Path, raw: bytes) -> None:
    assert list(Vocabulary.from_file(write(tmp_path, raw))) == ["a", "b"]


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"a\nb\na\n", "line 3 and line 1 are both 'a'"),
        (b"a\n!!!MAXTERMID\na\n", "line 3 and line 1 are both 'a'"),
        (b"a\n\nb\n", "line 2 is empty"),
        (b"a\n\n", "line 2 is empty"),
        (b"a\nb\xe9\n", "line 2, is not valid UTF-8 (byte 0xe9)"),
        (b"", "it is empty"),
    ],
)
def test_errors_state_file_and_line(tmp_path: Path, raw: bytes, expected: str) -> None:
    message = error_of(write(tmp_path, raw))
    assert "vocab.txt" in message
    assert expected in message


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["a", "a"], "word 2 and word 1"),
        (["a", ""], "word 2 is empty"),
        (["a\nb"], "word 1 contains a newline"),
        (["!!!MAXTERMID"], "MAXTERMID"),
    ],
)
def test_invalid_vocabularies_are_rejected(words: list[str], expected: str) -> None:
    with pytest.raises(DataError, match=expected):
        Vocabulary(words)


def test_missing_file_is_named(tmp_path: Path) -> None:
    assert "none.txt" in error_of(tmp_path / "none.txt")
    assert str(tmp_path) in error_of(tmp_path)


def test_missing_specials_are_reported_on_request() -> None:
    vocabulary = Vocabulary(["<S>", "a"])
    with pytest.raises(DataError, match="does not contain </S>, <UNK>"):
        vocabulary.require_specials()
    Vocabulary(SPECIALS).require_specials()


def test_failed_save_keeps_the_old_file_and_leaves_no_other_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, b"old\n")

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OutputError):
        Vocabulary(["new"]).save(path)
    assert path.read_bytes() == b"old\n"
    assert list(tmp_path.iterdir()) == [path]


def test_save_creates_missing_directories_and_does_not_replace_a_file_by_one(
    tmp_path: Path,
) -> None:
    Vocabulary(["a"]).save(tmp_path / "new" / "vocab.txt")
    assert list(Vocabulary.from_file(tmp_path / "new" / "vocab.txt"))[-1] == "a"
    with pytest.raises(OutputError):
        Vocabulary(["a"]).save(tmp_path / "new" / "vocab.txt" / "x")
