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
the rules for raw text. Comments such as "# name = value" are skipped; tokens may begin with "#".
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmokit.errors import DataError
from elmokit.tasks.documents import Document, Mention, Oddities, shortened
from elmokit.text.lines import Line
from elmokit.text.sentences import split_sentences

_BEGIN = re.compile(r"#\s*begin document\s*(?:\((.*)\)\s*;?\s*(?:part\s*(\d+))?|(.*?))\s*")
_END = re.compile(r"#\s*end document")
_COMMENT = re.compile(r"# *[\w.:]+(?: +[\w.:]+)* *=.*")
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


def read_columns(lines: Iterable[Line], odd: Oddities, *, labeled: bool) -> Iterator[Document]:
    """Read documents in columns.

    Args:
        lines: The lines to read.
        odd: Counter of irregularities.
        labeled: Whether to read the mentions.
    """
    draft: _Draft | None = None
    for line in lines:
        begin, end = _BEGIN.fullmatch(line.text), _END.match(line.text)
        if draft is not None and (begin or end or draft.path != line.path):
            yield draft.document(odd)
            draft = None
        if begin:
            draft = _Draft(line.path, begin[1] or begin[3] or "", int(begin[2] or 0))
        elif not line.text.strip():
            if draft is not None:
                draft.end_sentence()
        elif not end and not _is_comment(
            line.text, None if draft is None else draft.layout, labeled=labeled
        ):
            if draft is None:  # the first line of a file with one document is optional
                draft = _Draft(line.path, "", 0)
            draft.add(line, labeled=labeled)
    if draft is not None:
        yield draft.document(odd)


def _fields(text: str) -> list[str]:
    return text.split("\t") if "\t" in text else text.split()


def _layout(fields: Sequence[str]) -> Layout | None:
    if len(fields) >= _CONLL_2012:
        return Layout(3, len(fields) - 1, 9)
    return _LAYOUTS.get(len(fields))


def _is_comment(text: str, layout: Layout | None, *, labeled: bool) -> bool:
    """Return whether a line is a comment; ambiguous lines are rows, so that no token is lost.

    Args:
        text: The line.
        layout: Layout of the rows above, if any.
        labeled: Whether the rows have mentions.
    """
    if not _COMMENT.fullmatch(text):
        return False
    fields = _fields(text)
    if len(fields) >= _CONLL_2012:
        return not _is_numbered(fields)
    found = _layout(fields)
    # The first of three columns is a number, and tokens contain no spaces.
    if text.startswith("# ") or " " in fields[0] or found is None or found.token != 0:
        return True
    if found.mentions is None and (labeled or (layout is not None and layout.mentions is not None)):
        return True
    return layout is not None and layout.token != 0


def _is_numbered(fields: Sequence[str]) -> bool:
    """Return whether a row has its numbers: of part and token, or of the token."""
    if len(fields) >= _CONLL_2012:
        return fields[1].isdecimal() and fields[2].isdecimal()
    return len(fields) != 3 or fields[0].isdecimal()


@dataclass
class _Draft:
    """A document that is being read."""

    path: str
    name: str
    part: int
    sentences: list[list[str]] = field(default_factory=lambda: [[]])
    speakers: list[str] = field(default_factory=list)
    clusters: dict[str, list[Mention]] = field(default_factory=dict)
    opened: dict[str, list[tuple[int, int]]] = field(default_factory=dict)  # token, line
    layout: Layout | None = None
    labeled: bool = False
    empty_tokens: int = 0

    def add(self, line: Line, *, labeled: bool) -> None:
        fields = _fields(line.text)
        layout = _layout(fields)
        problem = f"found {len(fields)} columns"
        if line.text.startswith("#"):
            problem += " and no comment such as '# name = value'"
        remark = line.text.startswith("#") and not _is_numbered(fields)
        if layout is None or (labeled and layout.mentions is None) or remark:
            raise line.error(f"{problem}. {_COLUMNS}")
        if self.layout is not None and layout.token != self.layout.token:
            raise line.error(f"{problem}, but the lines above use a different layout. {_COLUMNS}")
        self.layout, self.labeled = layout, labeled
        token = fields[layout.token].strip()
        self.empty_tokens += not token
        said = "" if layout.speaker is None else fields[layout.speaker]
        if labeled and layout.mentions is not None:
            self._mark(line, fields[layout.mentions].strip())
        self.sentences[-1].append(token or "_")
        self.speakers.append("" if said in _NOTHING else said)

    def _mark(self, line: Line, marks: str) -> None:
        """Open and close mentions at the next token."""
        if marks in _NOTHING:
            return
        if not _PIECES.fullmatch(marks):
            raise line.error(f"invalid mentions '{marks[:40]}'. {_COLUMNS}")
        here = len(self.speakers)
        for alone, opening, closing in _PIECE.findall(marks):
            if opening or alone:
                self.opened.setdefault(opening or alone, []).append((here, line.number))
            if closing or alone:
                waiting = self.opened.get(closing or alone)
                if not waiting:
                    raise line.error(f"'{closing})' closes a mention that was not opened. {_FIX}")
                start, _ = waiting.pop()
                self.clusters.setdefault(closing or alone, []).append(Mention(start, here + 1))

    def end_sentence(self) -> None:
        if self.sentences[-1]:
            self.sentences.append([])

    def document(self, odd: Oddities) -> Document:
        for number, waiting in self.opened.items():
            if waiting:
                raise DataError(
                    f"{self.path}, line {waiting[-1][1]}: mention '({number}' is not closed before "
                    f"the end of its document. {_FIX}"
                )
        sentences = [sentence for sentence in self.sentences if sentence]
        if len(self.sentences) == 1 and self.layout == _LAYOUTS[3]:
            sentences = _found_sentences(sentences[0])
            odd["documents without empty lines, split into sentences by rules"] += 1
        odd["empty tokens, read as '_'"] += self.empty_tokens
        found = Document(
            tuple(map(tuple, sentences)),
            _clusters(self.clusters, odd) if self.labeled or not sentences else None,
            self.name or _stem(self.path),
            self.part,
            tuple(self.speakers) if any(self.speakers) else None,
        )
        return shortened(found, odd)


def _clusters(
    found: Mapping[str, Sequence[Mention]], odd: Oddities
) -> tuple[tuple[Mention, ...], ...]:
    """Keep each mention once, in its first cluster."""
    owner: dict[Mention, str] = {}
    for number, mentions in found.items():
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


def _found_sentences(tokens: Sequence[str]) -> list[list[str]]:
    """Split a list of tokens into sentences, as if they were separated by spaces."""
    starts = np.cumsum([0, *(len(token) + 1 for token in tokens)])[:-1]
    first = [start for start, _ in split_sentences(" ".join(tokens))]
    places = np.searchsorted(starts, first).tolist()
    cuts = sorted({0, *places, len(tokens)})
    return [list(tokens[a:b]) for a, b in pairwise(cuts)]


def _stem(path: str) -> str:
    return Path(path).name.split(".")[0]


def columns_of(document: Document, clusters: Iterable[Iterable[Mention]]) -> str:
    """Write a document in CoNLL-2012 columns, with clusters.

    Characters of the name that would be read as a comment or as several columns become "_".
    """
    marks: list[list[str]] = [[] for _ in document.tokens]
    numbered = sorted((m, n) for n, cluster in enumerate(clusters) for m in cluster)
    # The longest opens first and closes last, so that brackets nest.
    for (start, end), number in sorted(numbered, key=lambda one: (one[0][0], -one[0][1])):
        marks[start].append(f"({number})" if end - start == 1 else f"({number}")
    for (start, end), number in sorted(numbered, key=lambda one: (one[0][1], -one[0][0])):
        if end - start > 1:
            marks[end - 1].append(f"{number})")
    name, who = re.sub(r"\s|^#", "_", document.name) or "-", document.speakers
    rows = [f"#begin document ({name}); part {document.part:03d}"]
    for first, tokens in zip(document.bounds.tolist(), document.sentences, strict=False):
        for k, token in enumerate(tokens):
            said = (who[first + k] if who is not None else "") or "-"
            mentions = "|".join(marks[first + k]) or "-"
            empty = ["-"] * 5
            row = [name, str(document.part), str(k), token, *empty, said, "-", mentions]
            rows.append("\t".join(row))
        rows.append("")
    return "\n".join([*rows, "#end document"])
