"""Read text files as documents, sentences and words.

This module is used by `elmo prepare` and by commands that must read text in the same way, such as
`elmo perplexity`.

Documents are separated by blank lines and by the ends of files. By default, each line is split into
sentences. With `one_sentence_per_line`, each line is a sentence. With `tokenized`, each line is a
sentence with words separated by whitespace. Tokenized text cannot be split into sentences, because
the rules depend on the original whitespace and quotes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from elmokit.errors import DataError
from elmokit.text.lines import STDIN, Line, SkippedLines, check_files, read_lines
from elmokit.text.sentences import tokenize_line


@dataclass(frozen=True)
class LineSplitter:
    """Splits lines into sentences and words.

    Attributes:
        one_sentence_per_line: Whether each line is a sentence. Otherwise, lines are split into
            sentences.
        tokenized: Whether each line is a sentence with words separated by whitespace.
    """

    one_sentence_per_line: bool = False
    tokenized: bool = False

    def sentences(self, line: str) -> list[list[str]]:
        """Return the words of each sentence of a line."""
        split = not (self.one_sentence_per_line or self.tokenized)
        sentences = tokenize_line(line, tokenized=self.tokenized, split=split)
        return [words for _, _, words in sentences if words]


class Sentence(NamedTuple):
    """A sentence of a text.

    Attributes:
        document: The index of the document.
        words: The words of the sentence.
        line: The line that contains the sentence.
    """

    document: int
    words: list[str]
    line: Line


def read_sentences(
    files: Sequence[str | os.PathLike[str]],
    splitter: LineSplitter | None = None,
    skipped: SkippedLines | None = None,
) -> Iterator[Sentence]:
    """Yield the sentences of text files.

    Args:
        files: Text files; see `read_lines`.
        splitter: Splits lines into sentences and words.
        skipped: See `read_lines`.
    """
    splitter = splitter or LineSplitter()
    for document, line in read_document_lines(files, skipped):
        for sentence in splitter.sentences(line.text):
            yield Sentence(document, sentence, line)


def read_document_lines(
    files: Sequence[str | os.PathLike[str]], skipped: SkippedLines | None = None
) -> Iterator[tuple[int, Line]]:
    """Yield all nonblank lines, each with the index of its document."""
    document = -1
    for file in files:
        after_boundary = True
        for line in read_lines([file], skipped=skipped):
            if not line.text or line.text.isspace():
                after_boundary = True
                continue
            if after_boundary:
                document += 1
                after_boundary = False
            yield document, line


def read_blocks(
    files: Sequence[str | os.PathLike[str]],
    min_characters: int,
    skipped: SkippedLines | None = None,
) -> Iterator[bytes]:
    """Yield blocks of text that can be processed in parallel.

    Blocks end after a line, but not necessarily at the end of a document. There is an empty line
    before the first line of each document. A block that does not begin with an empty line continues
    the last document of the previous block.

    Args:
        files: Text files.
        min_characters: Minimum number of characters in all blocks except the last one.
        skipped: See `read_lines`.
    """
    lines: list[str] = []
    n_characters, last_document = 0, -1
    for document, line in read_document_lines(files, skipped):
        if document != last_document:
            lines.append("")
            last_document = document
        lines.append(line.text)
        n_characters += len(line.text) + 1
        if n_characters >= min_characters:
            yield "\n".join(lines).encode()
            lines, n_characters = [], 0
    if lines:
        yield "\n".join(lines).encode()


def check_held_out_files(
    files: Sequence[str | os.PathLike[str]], held_out: Sequence[str | os.PathLike[str]]
) -> None:
    """Check that all files exist, and that held-out files are not used for training.

    Args:
        files: Text files for training.
        held_out: Text files for evaluation.

    Raises:
        DataError: A file is missing, or is in both lists.
    """
    check_files([*files, *held_out])
    overlap = sorted(_real_paths(files) & _real_paths(held_out))
    if overlap:
        raise DataError(
            f"{overlap[0]} is used for both training and evaluation. Use a different file for "
            "evaluation."
        )


def _real_paths(files: Iterable[str | os.PathLike[str]]) -> set[str]:
    return {os.path.realpath(file) for file in files if os.fspath(file) != STDIN}
