"""Documents with clusters of mentions, and reading them from raw text and JSON lines.

Annotated documents are read by `conll2012.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from elmokit.tasks.inputs import Token, read_objects, split_text
from elmokit.text.lines import Line

#: Counts of irregularities in the data.
Oddities = Counter[str]


class Mention(NamedTuple):
    """Tokens start, ..., end - 1 of a document."""

    start: int
    end: int


@dataclass(frozen=True)
class Document:
    """A document.

    Attributes:
        sentences: The tokens of each sentence.
        clusters: Mentions of the same entity; None if they are not known.
        name: Its name.
        part: The number of the part, if a long document has several.
        speakers: The speaker of each token, "" if unknown; None: the data has no speakers.
        offsets: (start, end) of each token in the text, if it was raw text.
    """

    sentences: tuple[tuple[str, ...], ...]
    clusters: tuple[tuple[Mention, ...], ...] | None = None
    name: str = ""
    part: int = 0
    speakers: tuple[str, ...] | None = None
    offsets: tuple[tuple[int, int], ...] | None = None

    @property
    def texts(self) -> Sequence[Sequence[str]]:
        """The sentences that the biLM reads."""
        return self.sentences

    @property
    def genre(self) -> str:
        """The genre, from the name of the document in OntoNotes (bc/...) or GUM (GUM_news_...)."""
        if "/" in self.name:
            return self.name.split("/")[0]
        match = re.match(r"(?:GUM|GENTLE)_([^_]+)_", self.name)
        return match[1] if match else ""

    @cached_property
    def tokens(self) -> list[str]:
        """All tokens."""
        return [token for sentence in self.sentences for token in sentence]

    @cached_property
    def bounds(self) -> NDArray[np.int64]:
        """The start of each sentence, and the end of the last."""
        return np.cumsum([0, *map(len, self.sentences)], dtype=np.int64)

    @cached_property
    def gold(self) -> NDArray[np.int64]:
        """Start, end and number of the cluster (from 1) of each gold mention, (n, 3), sorted.

        Mentions that cross a sentence boundary are excluded.
        """
        rows = self._mentions
        return rows[rows[:, 1] <= self._sentence_ends(rows[:, 0])]

    @property
    def n_crossing(self) -> int:
        """The number of gold mentions that cross a sentence boundary."""
        return len(self._mentions) - len(self.gold)

    @cached_property
    def _mentions(self) -> NDArray[np.int64]:
        rows = [(*m, k) for k, cluster in enumerate(self.clusters or (), 1) for m in cluster]
        return np.array(sorted(rows), dtype=np.int64).reshape(-1, 3)

    def _sentence_ends(self, tokens: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.bounds[np.searchsorted(self.bounds, tokens, side="right")]

    @cached_property
    def speaker_numbers(self) -> NDArray[np.int64]:
        """The number of the speaker of each token; 0: unknown."""
        numbers = {"": 0}
        speakers = self.speakers if self.speakers is not None else [""] * int(self.bounds[-1])
        return np.array([numbers.setdefault(s, len(numbers)) for s in speakers], dtype=np.int64)

    @property
    def is_blank(self) -> bool:
        """Whether the text is redacted (tokens such as ____), as in the Reddit part of GUM."""
        return bool(self.tokens) and not any(token.strip("_") for token in self.tokens)

    def place(self, mention: Mention) -> tuple[int, int, int]:
        """Return sentence, start and end of a mention, relative to the sentence."""
        sentence = int(np.searchsorted(self.bounds, mention.start, side="right")) - 1
        first = int(self.bounds[sentence])
        return sentence, mention.start - first, mention.end - first


def _document(text: str, name: str = "") -> Document:
    """Split raw text into sentences and tokens."""
    pairs = list(split_text(text))
    offsets = tuple(chain.from_iterable(offsets for _, offsets in pairs))
    return Document(tuple(tokens for tokens, _ in pairs), name=name, offsets=offsets)


def read_text(lines: Iterable[Line]) -> Iterator[Document]:
    """Read raw text with empty lines between documents; offsets are relative to the document."""
    written: list[str] = []
    for line in chain(lines, [Line("", 0, "")]):
        if line.text.strip():
            written.append(line.text)
        elif written:
            yield _document("\n".join(written))
            written = []


class _Item(BaseModel, strict=True):
    sentences: list[list[Token]] | None = None
    text: str | None = None
    name: str = ""


def read_jsonl(lines: Iterable[Line]) -> Iterator[Document]:
    """Read JSON lines: {"sentences": [[token, ...], ...]}, or raw text as {"text": "..."}."""
    expected = 'Expected "sentences" (a list of lists of strings) or "text" (a string).'
    for line, item in read_objects(_Item, lines, expected):
        if item.text is not None:
            yield _document(item.text, item.name)
        elif item.sentences is not None:
            yield Document(tuple(map(tuple, item.sentences)), name=item.name)
        else:
            raise line.error(f"found '{line.text[:60]}'. {expected}")
