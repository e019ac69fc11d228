"""The words of a language model head, one per line in order of their index."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from elmokit.errors import DataError
from elmokit.storage.atomic import replace_file
from elmokit.storage.regular import read_bounded

BEGIN = "<S>"
END = "</S>"
UNKNOWN = "<UNK>"
SPECIALS = (BEGIN, END, UNKNOWN)

# A line of Google's vocabulary files that is not a word; bilm-tf skips it, so indices depend on it.
_NOT_A_WORD = "!!!MAXTERMID"
_MARK = "\ufeff"  # byte order mark


class Vocabulary:
    """A list of words; the index of a word is its position, counted from 0.

    Args:
        words: The words. A word may contain any character except a newline.

    Raises:
        DataError: A word is empty, contains a newline, or is repeated.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        self._index = {word: index for index, word in enumerate(self.words)}
        problem = _find_problem(self.words, "word")
        if _NOT_A_WORD in self._index:
            problem = (
                f"it contains '{_NOT_A_WORD}', which readers of vocabulary files skip. Remove it."
            )
        if problem:
            raise DataError(f"Invalid vocabulary: {problem}")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Vocabulary:
        """Read a vocabulary of elmokit or bilm-tf: UTF-8, one word per line.

        Raises:
            DataError: The file cannot be read, is not UTF-8, or has an empty or repeated line; the
                message contains the line number.
        """
        try:
            raw = read_bounded(Path(path), DataError)
        except OSError as error:
            raise DataError(
                f"Cannot read the vocabulary {os.fspath(path)}: {error.strerror}."
            ) from error
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            number = raw.count(b"\n", 0, error.start) + 1
            raise DataError(
                f"The vocabulary {os.fspath(path)}, line {number}, is not valid UTF-8 "
                f"(byte 0x{raw[error.start]:02x}). Convert it with: iconv -f latin1 -t utf-8"
            ) from None
        *lines, last = text.removeprefix(_MARK).split("\n")
        # A file from Windows has "\r" on every line; on some lines only, it is part of the word.
        if lines and all(line.endswith("\r") for line in lines):
            lines = [line[:-1] for line in lines]
        if last:  # a last line without a newline
            lines.append(last)
        problem = _find_problem(lines, "line") if lines else "it is empty."
        if problem:
            raise DataError(f"Invalid vocabulary {os.fspath(path)}: {problem}")
        return cls(line for line in lines if line != _NOT_A_WORD)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the words atomically, one per line.

        Raises:
            DataError: Reading the file would give different words.
            OutputError: The file cannot be written.
        """
        target = Path(path)
        # Reading removes one byte order mark at the start, which must not be part of a word.
        mark = _MARK if self.words and self.words[0].startswith(_MARK) else ""
        try:
            raw = (mark + "".join(f"{word}\n" for word in self.words)).encode("utf-8")
        except UnicodeEncodeError as error:
            raise DataError(
                f"Invalid vocabulary: a word contains the lone surrogate "
                f"{error.object[error.start]!a}, which UTF-8 cannot represent. Remove that word."
            ) from None
        with replace_file(target) as temporary:
            temporary.write_bytes(raw)

    def index(self, word: str) -> int:
        """Return the index of `word`, or the index of <UNK> if it is not in the vocabulary.

        Raises:
            DataError: Neither `word` nor <UNK> is in the vocabulary.
        """
        position = self._index.get(word)
        if position is None:
            position = self._index.get(UNKNOWN)
        if position is None:
            raise DataError(
                f"'{word}' is not in the vocabulary, and the vocabulary has no {UNKNOWN}."
            )
        return position

    def require_specials(self) -> None:
        """Check that <S>, </S> and <UNK> exist, which training and scoring need.

        Raises:
            DataError: One of them is missing.
        """
        missing = [word for word in SPECIALS if word not in self._index]
        if missing:
            raise DataError(
                f"The vocabulary of {len(self):,} words does not contain {', '.join(missing)}. "
                f"Add a line for each; in bilm-tf {' '.join(SPECIALS)} are the first lines."
            )

    def __len__(self) -> int:
        return len(self.words)

    def __getitem__(self, index: int) -> str:
        return self.words[index]

    def __contains__(self, word: object) -> bool:
        return word in self._index

    def __iter__(self) -> Iterator[str]:
        return iter(self.words)

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} words)"


def _find_problem(words: Sequence[str], unit: str) -> str | None:
    """Describe the first invalid word, by its number counted from 1."""
    # The usual case, ten times as fast as the loop below.
    known = set(words)
    if len(known) == len(words) and "" not in known and "\n" not in "".join(words):
        return None
    positions: dict[str, int] = {}
    for number, word in enumerate(words, start=1):
        if word == "":
            return f"{unit} {number} is empty. Remove it."
        if "\n" in word:
            return f"{unit} {number} contains a newline: {word!a}."
        first = positions.setdefault(word, number)
        if first != number and word != _NOT_A_WORD:
            return f"{unit} {number} repeats '{word}' of {unit} {first}. Remove one of them."
    return None
