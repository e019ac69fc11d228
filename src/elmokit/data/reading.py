"""Read text files as documents, sentences and words, as `elmo prepare` does.

Documents are separated by empty lines (or lines of whitespace) and file ends. A line is a paragraph
that is split into sentences, or with `one_sentence_per_line` a sentence. With `tokenized`, a line
is a sentence whose words are separated by whitespace; such text is not split into sentences,
because tokenization has moved the marks that the rules need (the space after a period, quotes).

Commands that read text as in training (held-out perplexity) use this module.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elmokit.errors import DataError
from elmokit.text.lines import STDIN, Line, SkippedLines, check_files, read_lines
from elmokit.text.sentences import split_sentences
from elmokit.text.tokenize import words


@dataclass(frozen=True)
class LineSplitter:
    """Split lines into sentences and words.

    Attributes:
        one_sentence_per_line: A line is a sentence; otherwise a paragraph, which is split.
        tokenized: Words are separated by whitespace, and a line is a sentence.
    """

    one_sentence_per_line: bool = False
    tokenized: bool = False

    def sentences(self, line: str) -> list[list[str]]:
        """Return the words of each sentence of a line; an empty line has none."""
        if self.tokenized:
            sentences = [line.split()]
        elif self.one_sentence_per_line:
            sentences = [words(line)]
        else:
            sentences = [words(line[start:end]) for start, end in split_sentences(line)]
        return [sentence for sentence in sentences if sentence]


class Sentence(NamedTuple):
    """A sentence, the document it is in (counted from 0) and the line it was read from."""

    document: int
    words: list[str]
    line: Line


def read_sentences(
    files: Sequence[str | os.PathLike[str]],
    splitter: LineSplitter | None = None,
    skipped: SkippedLines | None = None,
) -> Iterator[Sentence]:
    """Read the sentences of some files, one at a time.

    Args:
        files: Text files, see `read_lines`.
        splitter: Splits lines into sentences and words.
        skipped: Whether to skip lines that are not UTF-8; see `read_lines`.
    """
    splitter = splitter or LineSplitter()
    for document, line in read_paragraphs(files, skipped):
        for sentence in splitter.sentences(line.text):
            yield Sentence(document, sentence, line)


def read_paragraphs(
    files: Sequence[str | os.PathLike[str]], skipped: SkippedLines | None = None
) -> Iterator[tuple[int, Line]]:
    """Yield the lines with text, each with the number of its document, counted from 0."""
    document = -1
    for file in files:
        is_new = True  # whether the next line with text starts a document
        for line in read_lines([file], skipped=skipped):
            if not line.text or line.text.isspace():
                is_new = True
                continue
            if is_new:
                document += 1
                is_new = False
            yield document, line


def read_blocks(
    files: Sequence[str | os.PathLike[str]], characters: int, skipped: SkippedLines | None = None
) -> Iterator[bytes]:
    """Yield text in blocks that can be processed in parallel.

    A block can end after any line, even within a document. In a block, an empty line precedes each
    document that begins there; a block that does not start with an empty line continues the last
    document of the previous block.

    Args:
        files: Text files.
        characters: Minimum size of a block, except the last one.
        skipped: Whether to skip lines that are not UTF-8; see `read_lines`.
    """
    lines: list[str] = []
    n, last = 0, -1
    for document, line in read_paragraphs(files, skipped):
        if document != last:
            lines.append("")
            last = document
        lines.append(line.text)
        n += len(line.text) + 1
        if n >= characters:
            yield "\n".join(lines).encode()
            lines, n = [], 0
    if lines:
        yield "\n".join(lines).encode()


def check_split(
    files: Sequence[str | os.PathLike[str]], held_out: Sequence[str | os.PathLike[str]]
) -> None:
    """Raise an error for missing files, or if files for evaluation are among the others.

    Args:
        files: Files to read.
        held_out: Files for evaluation.

    Raises:
        DataError: A file is missing, or listed twice.
    """
    check_files([*files, *held_out])
    both = sorted(_real_paths(files) & _real_paths(held_out))
    if both:
        raise DataError(
            f"{both[0]} is used for both training and evaluation. Evaluate on text that the model "
            "was not trained on."
        )


def _real_paths(files: Iterable[str | os.PathLike[str]]) -> set[str]:
    return {os.path.realpath(file) for file in files if os.fspath(file) != STDIN}
