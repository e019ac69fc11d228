"""Read the sentences of files in order, with their positions.

By default, each line is a sentence, and an empty line is a sentence without tokens, so that line
and sentence numbers agree. With `split`, each line is a paragraph that is split into sentences, and
empty lines only separate paragraphs.

A digest of all lines is updated while they are read and stored with every finished chunk. A resumed
run thus detects whether the text that was already embedded has changed; the text after it may
change (for example, an invalid line may have been fixed).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from elmokit.errors import DataError
from elmokit.text.lines import STDIN, Line, missing, read_lines
from elmokit.text.sentences import split_sentences
from elmokit.text.tokenize import tokenize


def check_inputs(names: Sequence[str | Path]) -> None:
    """Raise if a file is missing or standard input is listed twice, before reading anything."""
    inputs = [str(name) for name in names]
    if inputs.count(STDIN) > 1:
        raise DataError("Standard input ('-') can be read only once.")
    for name in inputs:
        if name != STDIN and not _exists(name):
            raise DataError(missing(name))
        if name != STDIN and Path(name).is_dir():
            raise DataError(f"{name} is a directory, expected a file; give the files in it.")


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
    """A sentence of a corpus; `spans` are places in its line, None if it came tokenized."""

    tokens: list[str]
    spans: list[tuple[int, int]] | None
    text: str
    place: Place


class Mark(NamedTuple):
    """How far a corpus was read: the last sentence, and the digest of all lines up to it."""

    place: Place
    digest: str


class Corpus:
    """Text files that are read from the beginning, once.

    Args:
        inputs: Files; "-" is standard input.
        tokenized: Tokens are what whitespace separates; else lines are tokenized.
        split: Lines are paragraphs.
        skip_bad: Leave out and count lines that are not UTF-8.

    Attributes:
        lines: Lines read so far.
        n_bytes: Bytes of text read so far, as UTF-8.
        skipped: Bad lines left out so far.
        first_skipped: What was wrong with the first of them.
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
        self.lines = 0
        self.n_bytes = 0
        self.skipped = 0
        self.first_skipped = ""
        self._digest = hashlib.blake2b(digest_size=16)

    @property
    def digest(self) -> str:
        """The digest of all lines read so far and of their places."""
        return self._digest.hexdigest()

    @property
    def is_rereadable(self) -> bool:
        """Whether all inputs are plain files, which can be read more than once."""
        return all(name != STDIN and Path(name).is_file() for name in self.inputs)

    def read_all(self) -> None:
        """Read to the end without splitting sentences: find invalid lines, count and digest."""
        for _ in self._read():
            pass

    def sentences(self, done: Sequence[Mark] = ()) -> Iterator[Sentence]:
        """Yield the sentences.

        Args:
            done: How far each finished part of an earlier run went; what they cover is passed over.

        Raises:
            DataError: A line is bad, or what `done` covers has changed.
        """
        last = done[-1].place if done else Place(-1, 0, 0)
        pending = list(reversed(done))
        for file, line in self._read():
            here = (file, line.number)
            if here > last[:2]:
                self._check_passed(pending, None)
                yield from self._sentences(file, line)
                continue
            self._check_passed(pending, here)
            if here == last[:2]:
                yield from list(self._sentences(file, line))[last.sentence + 1 :]
        self._check_passed(pending, None)

    def _read(self) -> Iterator[tuple[int, Line]]:
        for file, name in enumerate(self.inputs):
            for line in read_lines([name], skip_bad=self.skip_bad, on_bad=self._count_bad):
                text = line.text.encode()
                self._digest.update(b"%d %d %d\n" % (file, line.number, len(text)))
                self._digest.update(text)
                self.lines += 1
                self.n_bytes += len(text) + 1
                yield file, line

    def _count_bad(self, message: str) -> None:
        self.skipped += 1
        self.first_skipped = self.first_skipped or message

    def _check_passed(self, pending: list[Mark], here: tuple[int, int] | None) -> None:
        """Compare the digest wherever a finished part ended; `here` None: beyond all of them."""
        while pending and (here is None or pending[-1].place[:2] <= here):
            mark = pending.pop()
            if here != mark.place[:2] or self.digest != mark.digest:
                name = self.inputs[min(mark.place.file, len(self.inputs) - 1)]
                raise DataError(
                    f"The input up to line {mark.place.line} of "
                    f"{'standard input' if name == STDIN else name} is not what the interrupted "
                    "run has embedded. Give the same text to resume, or start anew with "
                    "--overwrite."
                )

    def _sentences(self, file: int, line: Line) -> Iterator[Sentence]:
        place = Place(file, line.number, 0)
        return sentences_of(line.text, place, tokenized=self.tokenized, split=self.split)


def sentences_of(text: str, place: Place, *, tokenized: bool, split: bool) -> Iterator[Sentence]:
    """Yield the sentences of a line.

    Args:
        text: The line.
        place: Where it stands.
        tokenized: Tokens are what whitespace separates; else the line is tokenized.
        split: The line is a paragraph.
    """
    spans = split_sentences(text) if split else [(0, len(text))]
    for number, (start, end) in enumerate(spans):
        here = place._replace(sentence=number)
        written = text[start:end]
        if tokenized:
            yield Sentence(written.split(), None, written.strip(), here)
        else:
            tokens = tokenize(written)
            where = [(start + token.start, start + token.end) for token in tokens]
            yield Sentence([t.text for t in tokens], where, written.strip(), here)
