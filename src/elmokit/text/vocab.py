"""Read and write vocabulary files, which contain one word per line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from elmokit.errors import DataError
from elmokit.progress import plural
from elmokit.storage.atomic import replace_file
from elmokit.storage.regular import read_bounded

BEGIN = "<S>"
END = "</S>"
UNKNOWN = "<UNK>"
SPECIALS = (BEGIN, END, UNKNOWN)

# Google's vocabulary files contain this line. bilm-tf skips it, which affects the indices of words.
_SKIPPED_LINE = "!!!MAXTERMID"
_BYTE_ORDER_MARK = "\ufeff"


class Vocabulary:
    """A list of words. The index of a word is its 0-based position in the list.

    Args:
        words: The words, which can contain any character except a newline.

    Raises:
        DataError: A word is empty, contains a newline, is repeated, or is "!!!MAXTERMID".
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        self._index = {word: index for index, word in enumerate(self.words)}
        problem = _find_problem(self.words, "word")
        if _SKIPPED_LINE in self._index:
            problem = (
                f"it contains '{_SKIPPED_LINE}', which is skipped when a vocabulary file is read. "
                "Remove it."
            )
        if problem:
            raise DataError(f"Invalid vocabulary: {problem}")

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Vocabulary:
        """Read a vocabulary file of elmokit or bilm-tf: UTF-8, with one word per line.

        Raises:
            DataError: The file cannot be read, is empty or not valid UTF-8, or has an empty or
                duplicate line.
        """
        try:
            raw = read_bounded(Path(path), DataError)
        except OSError as error:
            raise DataError(
                f"Cannot read the vocabulary {os.fspath(path)}: {error.strerror}. Check the path "
                "and its permissions."
            ) from error
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            number = raw.count(b"\n", 0, error.start) + 1
            raise DataError(
                f"The vocabulary {os.fspath(path)}, line {number}, is not valid UTF-8 "
                f"(byte 0x{raw[error.start]:02x}). If the file is Latin-1, convert it with: "
                f"iconv -f latin1 -t utf-8 '{os.fspath(path)}' > utf8.txt"
            ) from None
        *lines, last = text.removeprefix(_BYTE_ORDER_MARK).split("\n")
        # In Windows files, all lines end with "\r". Otherwise, a final "\r" is part of the word.
        if lines and all(line.endswith("\r") for line in lines):
            lines = [line[:-1] for line in lines]
        if last:  # the last line does not end with a newline
            lines.append(last)
        problem = _find_problem(lines, "line") if lines else "it is empty."
        if problem:
            raise DataError(f"Invalid vocabulary {os.fspath(path)}: {problem}")
        return cls(line for line in lines if line != _SKIPPED_LINE)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the words atomically, one per line.

        Raises:
            OutputError: The file cannot be written.
        """
        target = Path(path)
        # If the first word begins with a byte order mark, add another, because reading removes one.
        mark = _BYTE_ORDER_MARK if self.words and self.words[0].startswith(_BYTE_ORDER_MARK) else ""
        text = mark + "".join(f"{word}\n" for word in self.words)
        with replace_file(target) as temporary:
            temporary.write_bytes(text.encode("utf-8"))

    def index(self, word: str) -> int:
        """Return the index of `word`, or the index of <UNK> if `word` is not in the vocabulary.

        Raises:
            DataError: Neither `word` nor <UNK> is in the vocabulary.
        """
        index = self._index.get(word, self._index.get(UNKNOWN))
        if index is None:
            raise DataError(
                f"'{word}' is not in the vocabulary, and the vocabulary has no {UNKNOWN}. Use only "
                "words in the vocabulary."
            )
        return index

    def require_specials(self) -> None:
        """Check that the vocabulary contains <S>, </S> and <UNK>, as required by the head.

        Raises:
            DataError: A special symbol is missing.
        """
        missing = [word for word in SPECIALS if word not in self._index]
        if missing:
            raise DataError(
                f"The vocabulary ({plural(len(self), 'word')}) does not contain "
                f"{', '.join(missing)}. Add a line for each at the beginning of the file, as in "
                "the vocabularies of bilm-tf."
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
        return f"Vocabulary({plural(len(self), 'word')})"


def _find_problem(words: Sequence[str], unit: str) -> str | None:
    """Return a description of the first invalid word with its 1-based number, or None."""
    # For valid vocabularies, this check is ten times as fast as the loop below.
    distinct = set(words)
    if len(distinct) == len(words) and "" not in distinct and "\n" not in "".join(words):
        return None
    positions: dict[str, int] = {}
    for number, word in enumerate(words, start=1):
        if word == "":
            return f"{unit} {number} is empty. Remove it."
        if "\n" in word:
            return f"{unit} {number} contains a newline: {word!a}."
        first = positions.setdefault(word, number)
        if first != number and word != _SKIPPED_LINE:
            return f"{unit} {number} and {unit} {first} are both '{word}'. Remove one of them."
    return None
