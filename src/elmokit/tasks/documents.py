"""Documents, with or without clusters of mentions, in columns, raw text or JSON lines.

This is a document in CoNLL-2012 columns:

    #begin document (bc/cctv/00/cctv_0000); part 000
    bc/cctv/00/cctv_0000  0  0  Ann   ... speaker ...  (3)
    bc/cctv/00/cctv_0000  0  1  met   ... speaker ...  -
    bc/cctv/00/cctv_0000  0  2  her   ... speaker ...  (5|(3)
    bc/cctv/00/cctv_0000  0  3  son   ... speaker ...  5)
    (an empty line ends the sentence)
    #end document

The brackets in the last column open and close mentions, and contain the number of the cluster.
Mentions can be nested. Files with three columns (number, token, mentions), two (token, mentions) or
one (token) are also accepted. Documents with three columns but without empty lines, such as those
of OntoGUM, are split into sentences by the rules for raw text. Comments such as "# name = value"
are skipped.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from elmokit.progress import plural
from elmokit.tasks.inputs import Token, is_blank, read_objects, split_blocks, split_text
from elmokit.text.lines import Line
from elmokit.text.sentences import sentence_spans

#: The number of occurrences of each kind of problem in the data, keyed by description.
DataIssues = Counter[str]

_BEGIN = re.compile(r"#\s*begin document\s*(?:\((.*)\)\s*;?\s*(?:part\s*(\d{1,9}))?|(.*?))\s*")
_END = re.compile(r"#\s*end document")
_COMMENT = re.compile(r"# .*=")  # a token may begin with "#"
_BRACKET = re.compile(r"\(([^()|\s]+)\)|\(([^()|\s]+)|([^()|\s]+)\)")
_BRACKETS = re.compile(rf"(?:(?:{_BRACKET.pattern})\|?)+")
_EMPTY = frozenset({"", "-", "_", "*"})
_COLUMNS = (
    "Expected CoNLL-2012 columns (document, part, token number, token, ..., mentions), three "
    "columns (token number, token, mentions) or two columns (token, mentions), with mentions such "
    "as '(3)', '(3' or '3)|5)'."
)
_FIX = "Fix the brackets or remove the document."


class Mention(NamedTuple):
    """A span of tokens in a document, from `start` up to but not including `end`."""

    start: int
    end: int


@dataclass(frozen=True)
class Document:
    """A document.

    Attributes:
        sentences: The tokens of each sentence.
        clusters: The mentions of each entity; None if unknown.
        name: The name of the document.
        part: The number of the part, if a long document is divided into several parts.
        speakers: The speaker of each token, "" if unknown; None if the data has no speakers.
        offsets: The character offsets (start, end) of each token in the text; None for tokenized
            input.
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
        """The start of each sentence, and the end of the last sentence."""
        return np.cumsum([0, *map(len, self.sentences)], dtype=np.int64)

    @cached_property
    def gold(self) -> NDArray[np.int64]:
        """Start, end and cluster ID (from 1) of each gold mention, (n, 3), sorted.

        Mentions that cross a sentence boundary are excluded.
        """
        mentions = [(*m, k) for k, cluster in enumerate(self.clusters or (), 1) for m in cluster]
        rows = np.array(sorted(mentions), dtype=np.int64).reshape(-1, 3)
        sentence_ends = self.bounds[np.searchsorted(self.bounds, rows[:, 0], side="right")]
        return rows[rows[:, 1] <= sentence_ends]

    @property
    def n_crossing(self) -> int:
        """The number of gold mentions that cross a sentence boundary."""
        return sum(map(len, self.clusters or ())) - len(self.gold)

    @cached_property
    def speaker_ids(self) -> NDArray[np.int64]:
        """The ID of the speaker of each token; 0 if unknown."""
        ids = {"": 0}
        speakers = self.speakers if self.speakers is not None else [""] * len(self.tokens)
        return np.array([ids.setdefault(s, len(ids)) for s in speakers], dtype=np.int64)

    @property
    def is_redacted(self) -> bool:
        """Whether the text is redacted (tokens such as ____), as in the Reddit part of GUM."""
        return bool(self.tokens) and not any(token.strip("_") for token in self.tokens)

    def locate(self, mention: Mention) -> tuple[int, int, int]:
        """Return the index of a mention's sentence, and the mention's start and end within it."""
        sentence = int(np.searchsorted(self.bounds, mention.start, side="right")) - 1
        first = int(self.bounds[sentence])
        return sentence, mention.start - first, mention.end - first


# ---------------------------------------------------------------------------------- raw text, JSON


def _split_document(text: str, name: str = "") -> Document:
    """Split raw text into sentences and tokens."""
    pairs = list(split_text(text))
    offsets = tuple(chain.from_iterable(offsets for _, offsets in pairs))
    return Document(tuple(tokens for tokens, _ in pairs), name=name, offsets=offsets)


def read_text(lines: Iterable[Line]) -> Iterator[Document]:
    """Read raw text with empty lines between documents; offsets count from a document's start."""
    for block in split_blocks(lines, is_blank):
        yield _split_document("\n".join(line.text for line in block))


class _Item(BaseModel, strict=True):
    sentences: list[list[Token]] | None = None
    text: str | None = None
    name: str = ""


def read_jsonl(lines: Iterable[Line]) -> Iterator[Document]:
    """Read JSON lines: {"sentences": [[token, ...], ...]}, or raw text as {"text": "..."}."""
    expected = 'Expected "sentences" (a list of lists of strings) or "text" (a string).'
    for line, item in read_objects(_Item, lines, expected):
        if item.text is not None:
            yield _split_document(item.text, item.name)
        elif item.sentences is not None:
            yield Document(tuple(map(tuple, item.sentences)), name=item.name)
        else:
            raise line.error(f"found '{line.text[:60]}'. {expected}")


# ---------------------------------------------------------------------------------------- columns


class Layout(NamedTuple):
    """The indices of the columns in a file."""

    token: int
    mentions: int | None
    speaker: int | None = None


_LAYOUTS = {1: Layout(0, None), 2: Layout(0, 1), 3: Layout(1, 2)}
_CONLL_2012 = 12  # columns of a sentence without predicates; each predicate adds one


def read_columns(
    lines: Iterable[Line], issues: DataIssues | None = None, *, labeled: bool
) -> Iterator[Document]:
    """Read documents in column format.

    Args:
        lines: The lines to read.
        issues: The counter of data issues to update.
        labeled: Whether to read the mentions.
    """
    issues = DataIssues() if issues is None else issues
    section: _Section | None = None
    for line in lines:
        begin, end = _BEGIN.fullmatch(line.text), _END.match(line.text)
        if section is not None and (begin or end or section.path != line.path):
            yield _read_section(section, issues, labeled=labeled)
            section = None
        if begin:
            section = _Section(line.path, begin[1] or begin[3] or "", int(begin[2] or 0), [])
        elif not end and not _COMMENT.match(line.text):
            # "#begin document" is optional in a file with one document.
            section = section or _Section(line.path, "", 0, [])
            if section.lines or not is_blank(line):
                section.lines.append(line)
    if section is not None:
        yield _read_section(section, issues, labeled=labeled)


class _Section(NamedTuple):
    """The lines of a document, starting with the line of its first token."""

    path: str
    name: str
    part: int
    lines: list[Line]


def _read_section(section: _Section, issues: DataIssues, *, labeled: bool) -> Document:
    layout: Layout | None = None
    sentences: list[list[str]] = []
    speakers: list[str] = []
    cells: list[tuple[Line, str]] = []  # the mentions column
    for block in split_blocks(section.lines, is_blank):
        sentences.append([])
        for line in block:
            fields = line.text.split("\t") if "\t" in line.text else line.text.split()
            layout = _check_layout(line, fields, layout, labeled=labeled)
            sentences[-1].append(fields[layout.token].strip())
            speaker = "" if layout.speaker is None else fields[layout.speaker]
            speakers.append("" if speaker in _EMPTY else speaker)
            if labeled and layout.mentions is not None:
                cells.append((line, fields[layout.mentions].strip()))
    clusters = _distinct_clusters(_read_mentions(cells), issues)
    issues["empty tokens, read as '_'"] += sum(not token for s in sentences for token in s)
    sentences = [[token or "_" for token in sentence] for sentence in sentences]
    if layout == _LAYOUTS[3] and not any(map(is_blank, section.lines)):
        sentences = _split_sentences(sentences[0])
        issues["documents without empty lines, split into sentences by rules"] += 1
    return Document(
        tuple(map(tuple, sentences)),
        clusters if labeled or not sentences else None,
        section.name or Path(section.path).name.split(".")[0],
        section.part,
        tuple(speakers) if any(speakers) else None,
    )


def _check_layout(
    line: Line, fields: Sequence[str], previous: Layout | None, *, labeled: bool
) -> Layout:
    """Return the layout of a row, which must be compatible with the layout of the previous row."""
    layout = None if len(fields) == 3 and not fields[0].isdecimal() else _LAYOUTS.get(len(fields))
    if len(fields) >= _CONLL_2012 and fields[2].isdecimal():
        layout = Layout(3, len(fields) - 1, 9)
    problem = f"found {plural(len(fields), 'column')} ('{line.text[:60]}')"
    if len(fields) == 3 and layout is None:
        problem = f"found '{fields[0][:20]}' in the first of 3 columns, expected a token number"
    if layout is None or (labeled and layout.mentions is None):
        raise line.error(f"{problem}. {_COLUMNS}")
    if previous is not None and layout.token != previous.token:
        raise line.error(f"{problem}, but the lines above use a different layout. {_COLUMNS}")
    return layout


def _read_mentions(cells: Iterable[tuple[Line, str]]) -> dict[str, list[Mention]]:
    """Return the mentions of each cluster, given the mentions column of a document."""
    clusters: dict[str, list[Mention]] = defaultdict(list)
    unclosed: dict[str, list[tuple[int, Line]]] = defaultdict(list)
    for position, (line, cell) in enumerate(cells):
        if cell not in _EMPTY and not _BRACKETS.fullmatch(cell):
            raise line.error(f"invalid mentions '{cell[:40]}'. {_COLUMNS}")
        for single, first, last in _BRACKET.findall(cell):
            if opening := single or first:
                unclosed[opening].append((position, line))
            if closing := single or last:
                if not unclosed[closing]:
                    raise line.error(f"'{closing})' closes a mention that was not opened. {_FIX}")
                start, _ = unclosed[closing].pop()
                clusters[closing].append(Mention(start, position + 1))
    for cluster, starts in unclosed.items():
        for _, line in starts:
            raise line.error(
                f"mention '({cluster}' is not closed before the end of its document. {_FIX}"
            )
    return clusters


def _distinct_clusters(
    clusters: Mapping[str, Sequence[Mention]], issues: DataIssues
) -> tuple[tuple[Mention, ...], ...]:
    """Remove duplicate mentions, and assign each mention to the first cluster that contains it."""
    cluster_of: dict[Mention, str] = {}
    for cluster, mentions in clusters.items():
        issues["duplicate mentions, read once"] += len(mentions) - len(set(mentions))
        for mention in set(mentions):
            if cluster_of.setdefault(mention, cluster) != cluster:
                issues["mentions in two clusters, assigned to the first"] += 1
    distinct: dict[str, list[Mention]] = defaultdict(list)
    for mention, cluster in sorted(cluster_of.items()):
        distinct[cluster].append(mention)
    return tuple(map(tuple, distinct.values()))


def _split_sentences(tokens: Sequence[str]) -> list[list[str]]:
    """Split a list of tokens into sentences, as if the tokens were separated by spaces."""
    starts = np.cumsum([0, *(len(token) + 1 for token in tokens)])[:-1]
    first = [start for start, _ in sentence_spans(" ".join(tokens))]
    bounds = sorted({0, *np.searchsorted(starts, first).tolist(), len(tokens)})
    return [list(tokens[a:b]) for a, b in pairwise(bounds)]


def format_columns(document: Document, clusters: Iterable[Iterable[Mention]]) -> str:
    """Return a document and the given clusters in CoNLL-2012 columns.

    Whitespace in the document name, and "#" at its start, are replaced with "_".
    """
    cells: list[list[str]] = [[] for _ in document.tokens]
    mentions = sorted((m, n) for n, cluster in enumerate(clusters) for m in cluster)
    # At the same token, longer mentions open first and close last, so that brackets nest.
    for (start, end), number in sorted(mentions, key=lambda item: (item[0][0], -item[0][1])):
        cells[start].append(f"({number})" if end - start == 1 else f"({number}")
    for (start, end), number in sorted(mentions, key=lambda item: (item[0][1], -item[0][0])):
        if end - start > 1:
            cells[end - 1].append(f"{number})")
    name = re.sub(r"\s|^#", "_", document.name) or "-"
    speakers = document.speakers or [""] * len(cells)
    rows = [f"#begin document ({name}); part {document.part:03d}"]
    for first, tokens in zip(document.bounds.tolist(), document.sentences, strict=False):
        for k, token in enumerate(tokens):
            speaker, cell = speakers[first + k] or "-", "|".join(cells[first + k]) or "-"
            row = [name, str(document.part), str(k), token, *["-"] * 5, speaker, "-", cell]
            rows.append("\t".join(row))
        rows.append("")
    return "\n".join([*rows, "#end document"])
