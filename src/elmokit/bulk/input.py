"""Split lines into sentences and tokens.

By default, each line is a sentence, and an empty line is a sentence without tokens, so that line
and sentence numbers agree. With `split`, each line is a paragraph that is split into sentences, and
empty lines only separate paragraphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


def tokenize_line(
    text: str, *, tokenized: bool, split: bool
) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the offset, text and tokens of each sentence of a line.

    Args:
        text: The line.
        tokenized: Tokens are separated by whitespace; otherwise the line is tokenized.
        split: The line is a paragraph.
    """
    for begin, end in split_sentences(text) if split else [(0, len(text))]:
        sentence = text[begin:end]
        yield begin, sentence, sentence.split() if tokenized else words(sentence)


class Sentence(NamedTuple):
    """The tokens of a sentence and its position: a file and the number of a line, from 1."""

    tokens: list[str]
    file: str
    line: int


def read_sentences(
    files: Sequence[str | Path],
    *,
    tokenized: bool = False,
    split: bool = False,
    skip_bad: bool = False,
    on_bad: Callable[[str], None] | None = None,
) -> Iterator[Sentence]:
    """Yield the sentences of text files.

    Args:
        files: Files; "-" is standard input.
        tokenized: Tokens are separated by whitespace; otherwise lines are tokenized.
        split: Lines are paragraphs.
        skip_bad: Skip lines that are not UTF-8, instead of raising.
        on_bad: Called with the message for each skipped line.
    """
    for file in map(str, files):
        for line in read_lines([file], skip_bad=skip_bad, on_bad=on_bad):
            for _, _, tokens in tokenize_line(line.text, tokenized=tokenized, split=split):
                yield Sentence(tokens, file, line.number)
