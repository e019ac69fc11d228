"""Read the sentences of files in order, with their positions.

By default, each line is a sentence, and an empty line is a sentence without tokens, so that line
and sentence numbers agree. With `split`, each line is a paragraph that is split into sentences, and
empty lines only separate paragraphs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from elmokit.errors import DataError
from elmokit.text.lines import STDIN, missing, read_lines
from elmokit.text.sentences import split_sentences
from elmokit.text.tokenize import words


def check_inputs(names: Sequence[str | Path]) -> None:
    """Raise if a file is missing or standard input is listed twice, before reading anything."""
    inputs = [str(name) for name in names]
    if inputs.count(STDIN) > 1:
        raise DataError("Standard input ('-') can be read only once.")
    for name in inputs:
        if name != STDIN and not _exists(name):
            raise DataError(missing(name))
        if name != STDIN and Path(name).is_dir():
            raise DataError(f"{name} is a directory; expected a file. List the files in it.")


def _exists(name: str) -> bool:
    try:
        return Path(name).exists()
    except OSError:  # a sentence instead of a file can be longer than any name
        return False


class Place(NamedTuple):
    """The position of a sentence: file (from 0), line (from 1), sentence in the line (from 0)."""

    file: int
    line: int
    sentence: int


class Sentence(NamedTuple):
    """A sentence of a corpus and its position."""

    tokens: list[str]
    place: Place


class Corpus:
    """Text files that are read once, from the beginning.

    Args:
        inputs: Files; "-" is standard input.
        tokenized: Tokens are separated by whitespace; otherwise lines are tokenized.
        split: Lines are paragraphs.
        skip_bad: Skip and count lines that are not UTF-8.

    Attributes:
        n_bytes: Bytes of text read so far, as UTF-8.
        skipped: Number of lines skipped so far.
        first_skipped: The message of the first one.
    """

    def __init__(
        self,
        inputs: Sequence[str | Path],
        *,
        tokenized: bool = False,
        split: bool = False,
        skip_bad: bool = False,
    ) -> None:
        self.inputs = [str(name) for name in inputs]
        self.tokenized = tokenized
        self.split = split
        self.skip_bad = skip_bad
        self.n_bytes = 0
        self.skipped = 0
        self.first_skipped = ""

    def sentences(self) -> Iterator[Sentence]:
        """Yield the sentences; a line that is not UTF-8 is an error without `skip_bad`."""
        for file, name in enumerate(self.inputs):
            for line in read_lines([name], skip_bad=self.skip_bad, on_bad=self._count_bad):
                self.n_bytes += len(line.text.encode()) + 1
                yield from self._sentences(line.text, Place(file, line.number, 0))

    def _count_bad(self, message: str) -> None:
        self.skipped += 1
        self.first_skipped = self.first_skipped or message

    def _sentences(self, text: str, place: Place) -> Iterator[Sentence]:
        spans = split_sentences(text) if self.split else [(0, len(text))]
        for number, (start, end) in enumerate(spans):
            sentence = text[start:end]
            tokens = sentence.split() if self.tokenized else words(sentence)
            yield Sentence(tokens, place._replace(sentence=number))
