"""Documents in CoNLL-2012 columns, with clusters of mentions.

    #begin document (bc/cctv/00/cctv_0000); part 000
    bc/cctv/00/cctv_0000  0  0  Ann   ... speaker ...  (3)
    bc/cctv/00/cctv_0000  0  1  met   ... speaker ...  -
    bc/cctv/00/cctv_0000  0  2  her   ... speaker ...  (5|(3)
    bc/cctv/00/cctv_0000  0  3  son   ... speaker ...  5)
    (an empty line ends the sentence)
    #end document

The last column opens and closes mentions by the number of their cluster. Files with three
columns (number, token, mentions), two (token, mentions) or one (token) are also accepted. Mentions
may nest. Files of three columns without empty lines, such as OntoGUM, are split into sentences by
the rules for raw text. Comments such as "# name = value" are skipped.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmokit.progress import plural
from elmokit.tasks.documents import Document, Mention, Oddities
from elmokit.text.lines import Line
from elmokit.text.sentences import split_sentences

_BEGIN = re.compile(r"#\s*begin document\s*(?:\((.*)\)\s*;?\s*(?:part\s*(\d+))?|(.*?))\s*")
_END = re.compile(r"#\s*end document")
_COMMENT = re.compile(r"# .*=")  # a token may begin with "#"
_PIECE = re.compile(r"\(([^()|\s]+)\)|\(([^()|\s]+)|([^()|\s]+)\)")
_PIECES = re.compile(rf"(?:(?:{_PIECE.pattern})\|?)+")
_NOTHING = frozenset({"", "-", "_", "*"})
_COLUMNS = (
    "Expected CoNLL-2012 columns (document, part, number, token, ..., mentions) or three columns "
    "(number, token, mentions), with mentions such as (3), (3 or 3)|5)."
)
_FIX = "Fix the brackets or remove the document."


class Layout(NamedTuple):
    """The columns of a file."""

    token: int
    mentions: int | None
    speaker: int | None = None


_LAYOUTS = {1: Layout(0, None), 2: Layout(0, 1), 3: Layout(1, 2)}
_CONLL_2012 = 12  # columns, plus one for each predicate of the sentence


def read_columns(
    lines: Iterable[Line], odd: Oddities | None = None, *, labeled: bool
) -> Iterator[Document]:
    """Read documents in columns.

    Args:
        lines: The lines to read.
        odd: Counter of irregularities.
        labeled: Whether to read the mentions.
    """
    odd = Oddities() if odd is None else odd
    draft: _Draft | None = None
    for line in lines:
        begin, end = _BEGIN.fullmatch(line.text), _END.match(line.text)
        if draft is not None and (begin or end or draft.path != line.path):
            yield draft.document(odd)
            draft = None
        if begin:
            name, part = begin[1] or begin[3] or "", int(begin[2] or 0)
            draft = _Draft(line.path, name, part, labeled)
        elif not line.text.strip():
            if draft is not None and draft.sentences[-1]:
                draft.sentences.append([])
        elif not end and not _COMMENT.match(line.text):
            # The first line of a file with one document is optional.
            draft = draft or _Draft(line.path, "", 0, labeled)
            draft.add(line)
    if draft is not None:
        yield draft.document(odd)


def _layout(fields: Sequence[str]) -> Layout | None:
    """Return the layout of a row; None: it has none, or no number where one is expected."""
    if len(fields) >= _CONLL_2012:
        return Layout(3, len(fields) - 1, 9) if fields[2].isdecimal() else None
    return None if len(fields) == 3 and not fields[0].isdecimal() else _LAYOUTS.get(len(fields))


@dataclass
class _Draft:
    """A document that is being read."""

    path: str
    name: str
    part: int
    labeled: bool
    sentences: list[list[str]] = field(default_factory=lambda: [[]])
    speakers: list[str] = field(default_factory=list)
    clusters: dict[str, list[Mention]] = field(default_factory=lambda: defaultdict(list))
    opened: dict[str, list[tuple[int, Line]]] = field(default_factory=lambda: defaultdict(list))
    layout: Layout | None = None

    def add(self, line: Line) -> None:
        """Add a token."""
        fields = line.text.split("\t") if "\t" in line.text else line.text.split()
        layout = _layout(fields)
        problem = f"found {plural(len(fields), 'column')} ('{line.text[:60]}')"
        if layout is None or (self.labeled and layout.mentions is None):
            raise line.error(f"{problem}. {_COLUMNS}")
        if self.layout is not None and layout.token != self.layout.token:
            raise line.error(f"{problem}, but the lines above use a different layout. {_COLUMNS}")
        self.layout = layout
        if self.labeled and layout.mentions is not None:
            self._mark(line, fields[layout.mentions].strip())
        self.sentences[-1].append(fields[layout.token].strip())
        speaker = "" if layout.speaker is None else fields[layout.speaker]
        self.speakers.append("" if speaker in _NOTHING else speaker)

    def _mark(self, line: Line, marks: str) -> None:
        """Open and close mentions at the next token."""
        if marks in _NOTHING:
            return
        if not _PIECES.fullmatch(marks):
            raise line.error(f"invalid mentions '{marks[:40]}'. {_COLUMNS}")
        here = len(self.speakers)
        for alone, opening, closing in _PIECE.findall(marks):
            if opening or alone:
                self.opened[opening or alone].append((here, line))
            if closing or alone:
                if not self.opened[closing or alone]:
                    raise line.error(f"'{closing})' closes a mention that was not opened. {_FIX}")
                start, _ = self.opened[closing or alone].pop()
                self.clusters[closing or alone].append(Mention(start, here + 1))

    def document(self, odd: Oddities) -> Document:
        """Return the document."""
        for number, waiting in self.opened.items():
            for _, line in waiting:
                raise line.error(
                    f"mention '({number}' is not closed before the end of its document. {_FIX}"
                )
        odd["empty tokens, read as '_'"] += sum(not token for s in self.sentences for token in s)
        sentences = [[token or "_" for token in s] for s in self.sentences if s]
        if len(self.sentences) == 1 and self.layout == _LAYOUTS[3]:
            sentences = _split_sentences(sentences[0])
            odd["documents without empty lines, split into sentences by rules"] += 1
        return Document(
            tuple(map(tuple, sentences)),
            _clusters(self.clusters, odd) if self.labeled or not sentences else None,
            self.name or Path(self.path).name.split(".")[0],
            self.part,
            tuple(self.speakers) if any(self.speakers) else None,
        )


def _clusters(
    annotated: Mapping[str, Sequence[Mention]], odd: Oddities
) -> tuple[tuple[Mention, ...], ...]:
    """Assign each mention to its first cluster."""
    owner: dict[Mention, str] = {}
    for number, mentions in annotated.items():
        for mention in mentions:
            if mention not in owner:
                owner[mention] = number
            elif owner[mention] == number:
                odd["duplicate mentions, read once"] += 1
            else:
                odd["mentions in two clusters, assigned to the first"] += 1
    clusters: dict[str, list[Mention]] = {}
    for mention, number in sorted(owner.items()):
        clusters.setdefault(number, []).append(mention)
    return tuple(map(tuple, clusters.values()))


def _split_sentences(tokens: Sequence[str]) -> list[list[str]]:
    """Split a list of tokens into sentences, as if they were separated by spaces."""
    starts = np.cumsum([0, *(len(token) + 1 for token in tokens)])[:-1]
    first = [start for start, _ in split_sentences(" ".join(tokens))]
    places = np.searchsorted(starts, first).tolist()
    cuts = sorted({0, *places, len(tokens)})
    return [list(tokens[a:b]) for a, b in pairwise(cuts)]


def columns_of(document: Document, clusters: Iterable[Iterable[Mention]]) -> str:
    """Write a document in CoNLL-2012 columns, with clusters.

    Characters of the name that would be read as a comment or as several columns become "_".
    """
    marks: list[list[str]] = [[] for _ in document.tokens]
    numbered = sorted((m, n) for n, cluster in enumerate(clusters) for m in cluster)
    # The longest mention opens first and closes last, so that brackets nest.
    for (start, end), number in sorted(numbered, key=lambda one: (one[0][0], -one[0][1])):
        marks[start].append(f"({number})" if end - start == 1 else f"({number}")
    for (start, end), number in sorted(numbered, key=lambda one: (one[0][1], -one[0][0])):
        if end - start > 1:
            marks[end - 1].append(f"{number})")
    name = re.sub(r"\s|^#", "_", document.name) or "-"
    speakers = document.speakers or [""] * len(marks)
    rows = [f"#begin document ({name}); part {document.part:03d}"]
    for first, tokens in zip(document.bounds.tolist(), document.sentences, strict=False):
        for k, token in enumerate(tokens):
            speaker, mentions = speakers[first + k] or "-", "|".join(marks[first + k]) or "-"
            row = [name, str(document.part), str(k), token, *["-"] * 5, speaker, "-", mentions]
            rows.append("\t".join(row))
        rows.append("")
    return "\n".join([*rows, "#end document"])
