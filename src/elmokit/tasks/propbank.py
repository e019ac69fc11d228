"""Predicates and their arguments, in the formats of PropBank data.

- JSON lines: {"words": [...], "pos": [...], "frames": [{"pred": 1, "args": [[0, 0, "ARG0"]]}]},
  where "pos" is optional and the end of an argument is inclusive.
- JSON lines as written by `predict --json`:
  {"tokens": [...], "frames": [{"predicate": 1, "roles": [{"label": "A0", "start": 0, "end": 1}]}]},
  where "end" is exclusive.
- CoNLL-2005 columns: words, any other columns, the target verbs ("-" if the word is not a target),
  and a column of arguments for each target, such as (A0* * *).
- CoNLL-2012 columns: the *_gold_conll files of OntoNotes, recognized by "#begin document".

A file is read as JSON lines if its first line looks like a JSON object.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Annotated, Any, NamedTuple, Self

from pydantic import AliasChoices, BaseModel, Field, StringConstraints, model_validator

from elmokit.progress import plural
from elmokit.tasks.inputs import TextOrTokens, Token, read_object, read_objects, split_text
from elmokit.tasks.metrics.spans import PREDICATE, Span, spans_to_tags
from elmokit.text.lines import Line
from elmokit.text.treebank import unescape

NO_TARGET = "-"

_ONTONOTES = "_conll"  # suffix of the file names of OntoNotes
_BOUNDARY = re.compile(r"#\s*(?:begin|end) document")  # of a document in CoNLL-2012
_OBJECT = re.compile(r"\s*\{\s*(?:[\"'}]|$)")  # not a row whose word begins with a brace
_WORD, _POS, _ROLES = 3, 4, 11  # columns of CoNLL-2012; the last column, coreference, is ignored
_CELL = re.compile(r"((?:\([^()*]+)*)\*((?:[^()*]*\))*)")
_JSON = (
    'Expected an object with "words" (a list of strings) and "frames" (a list of objects such as '
    '{"pred": 1, "args": [[0, 0, "ARG0"], [2, 4, "ARG1"]]}, or in the format of predict --json: '
    '{"predicate": 1, "roles": [{"label": "ARG0", "start": 0, "end": 1}]}).'
)
_COLUMNS = (
    "The file must have one word per line, followed by a column of target verbs ('-' if the word "
    "is not a target) and one column of arguments per target, such as (A0* * *), and an empty line "
    "after each sentence."
)


@dataclass(frozen=True)
class Frame:
    """A predicate and its arguments.

    Attributes:
        predicate: The position of the predicate.
        arguments: The labeled spans of the arguments and of the predicate itself (V).
        verb: Whether the predicate is a verb; True if the data has no parts of speech.
    """

    predicate: int
    arguments: tuple[Span, ...] = ()
    verb: bool = True

    @classmethod
    def of(cls, predicate: int, spans: Iterable[Span], *, verb: bool) -> Frame:
        """Create a frame. If no span is labeled V, add one for the predicate."""
        arguments = set(spans)
        if not any(span.type == PREDICATE for span in arguments):
            arguments.add(Span(predicate, predicate + 1, PREDICATE))
        return cls(predicate, tuple(sorted(arguments)), verb)

    @cached_property
    def non_overlapping(self) -> tuple[Span, ...]:
        """The non-overlapping arguments, as tags require. V takes precedence, then longer spans."""
        selected: list[Span] = []
        for span in sorted(self.arguments, key=lambda s: (s.type != PREDICATE, s.start - s.end, s)):
            if all(span.end <= other.start or other.end <= span.start for other in selected):
                selected.append(span)
        return tuple(sorted(selected))


@dataclass(frozen=True)
class Sentence:
    """A sentence and its predicates.

    Attributes:
        tokens: The tokens.
        frames: The predicates with their arguments, if known.
        predicates: The positions of the predicates; None if they are to be predicted.
        offsets: The character offsets (start, end) of each token in its line; None for tokenized
            input.
    """

    tokens: tuple[str, ...]
    frames: tuple[Frame, ...] = ()
    predicates: tuple[int, ...] | None = None
    offsets: tuple[tuple[int, int], ...] | None = None

    @classmethod
    def of(cls, tokens: Sequence[str], frames: Iterable[Frame]) -> Sentence:
        """Create a sentence with its frames."""
        frames = tuple(frames)
        return cls(tuple(tokens), frames, tuple(frame.predicate for frame in frames))

    @property
    def texts(self) -> Sequence[Sequence[str]]:
        """The tokenized texts for the biLM."""
        return (self.tokens,)

    @cached_property
    def tags(self) -> list[str]:
        """The tags of the first frame."""
        return spans_to_tags(self.frames[0].non_overlapping, len(self.tokens))


def read_frames(path: str, lines: Iterable[Line]) -> Iterator[Sentence]:
    """Read labeled sentences in any of the formats of this module."""
    lines = list(lines)
    first = next((line.text for line in lines if line.text.strip()), "")
    if _OBJECT.match(first):
        return (_read_json(line) for line in lines if line.text.strip())
    if path.endswith(_ONTONOTES) or any(_BOUNDARY.match(line.text) for line in lines):
        return (_read_conll2012(rows) for rows in _read_blocks(lines, comments=True))
    return (_read_conll2005(rows) for rows in _read_blocks(lines, comments=False))


def read_text(lines: Iterable[Line]) -> Iterator[Sentence]:
    """Split lines of raw text into sentences and tokens."""
    for line in lines:
        for tokens, offsets in split_text(line.text):
            yield Sentence(tokens, offsets=offsets)


# ------------------------------------------------------------------------------------------- JSON


class _Role(BaseModel, strict=True):
    label: Annotated[str, StringConstraints(pattern=r"^[^()*\s]+$")]  # valid in columns
    start: int
    end: int

    @model_validator(mode="before")
    @classmethod
    def _read_list(cls, value: Any) -> Any:
        match value:
            case [start, int(last), label]:
                return {"label": label, "start": start, "end": last + 1}
        return value


class _Frame(BaseModel, strict=True):
    predicate: int = Field(validation_alias=AliasChoices("pred", "predicate"))
    roles: list[_Role] = Field(validation_alias=AliasChoices("args", "roles"))


class _Item(TextOrTokens):
    tokens: list[Token] | None = Field(None, validation_alias=AliasChoices("words", "tokens"))
    pos: list[Any] | None = None
    frames: list[_Frame] | None = None
    predicates: list[int] | None = None

    @property
    def positions(self) -> list[int] | None:
        """The positions of the predicates, if known."""
        if self.predicates is None and self.frames is not None:
            return [frame.predicate for frame in self.frames]
        return self.predicates

    @model_validator(mode="after")
    def _check_positions(self) -> Self:
        length = len(self.tokens or ())
        sentence = f"a sentence of {plural(length, 'word')}"
        if self.pos is not None and len(self.pos) != length:
            raise ValueError('"pos" must be a list with one value per word')
        for position in self.positions or ():
            if not 0 <= position < length:
                raise ValueError(f"predicate {position} is out of range in {sentence}")
        for role in (role for frame in self.frames or () for role in frame.roles):
            if not 0 <= role.start < role.end <= length:
                raise ValueError(f"invalid argument span ({role}) in {sentence}")
        return self


class _LabeledItem(_Item):
    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.tokens is None or self.frames is None:
            raise ValueError('missing "words" or "frames"')
        return self


def _read_json(line: Line) -> Sentence:
    item = read_object(_LabeledItem, line, _JSON)
    frames = []
    for frame in item.frames or ():
        spans = (Span(role.start, role.end, role.label) for role in frame.roles)
        verb = item.pos is None or str(item.pos[frame.predicate]).startswith("V")
        frames.append(Frame.of(frame.predicate, spans, verb=verb))
    return Sentence.of(item.tokens or (), frames)


def read_jsonl(lines: Iterable[Line]) -> Iterator[Sentence]:
    """Read unlabeled sentences: {"tokens": [...], "predicates": [...]} or {"text": "..."}.

    "words" is an alias of "tokens". If "predicates" is missing, it is taken from "frames". If
    both are missing, the predicates are predicted.
    """
    for line, item in read_objects(_Item, lines):
        if item.tokens is None:
            yield from read_text([line._replace(text=item.text or "")])
            continue
        predicates = None if item.positions is None else tuple(item.positions)
        if predicates and len(set(predicates)) < len(predicates):
            raise line.error(f"duplicate predicates in {item.positions}. Remove the duplicates.")
        yield Sentence(tuple(item.tokens), predicates=predicates)


# ---------------------------------------------------------------------------------------- columns


class _Row(NamedTuple):
    """A line split into columns."""

    line: Line
    fields: list[str]


def _read_blocks(lines: Iterable[Line], *, comments: bool) -> Iterator[list[_Row]]:
    """Yield the rows of each sentence, and check that they have the same number of columns."""
    rows: list[_Row] = []
    for line in chain(lines, [Line("", 0, "")]):
        fields = line.text.split()
        if not fields or (comments and line.text.startswith("#")):
            if rows:
                yield rows
            rows = []
            continue
        if rows and len(fields) != len(rows[0].fields):
            raise line.error(
                f"found {plural(len(fields), 'column')}, expected {len(rows[0].fields)}, as in the "
                f"line above. {_COLUMNS}"
            )
        rows.append(_Row(line, fields))


def _read_conll2012(rows: list[_Row]) -> Sentence:
    line, fields = rows[0]
    if len(fields) <= _ROLES:
        raise line.error(
            f"found {plural(len(fields), 'column')}, expected {_ROLES + 1} or more. Check that "
            "the file is in CoNLL-2012 format."
        )
    frames = []
    for column in range(_ROLES, len(fields) - 1):
        spans = _read_spans(rows, column)
        predicate = next((span.start for span in spans if span.type == PREDICATE), None)
        if predicate is None:
            raise line.error(f"column {column + 1} has no predicate; expected a cell such as (V*).")
        verb = rows[predicate].fields[_POS].startswith("V")
        frames.append(Frame.of(predicate, spans, verb=verb))
    return Sentence.of(_read_words(rows, _WORD), frames)


def _read_conll2005(rows: list[_Row]) -> Sentence:
    line, fields = rows[0]
    column = len(fields) - 1  # the targets: the last column without arguments
    while column > 0 and any("*" in row.fields[column] for row in rows):
        column -= 1
    if column == 0:
        raise line.error(
            "found no words before the column of target verbs. If words and props are in separate "
            f"files, join them: paste -d' ' WORDS PROPS. {_COLUMNS}"
        )
    targets = [i for i, row in enumerate(rows) if row.fields[column] != NO_TARGET]
    arguments = range(column + 1, len(fields))
    if len(targets) != len(arguments):
        raise line.error(
            f"found {plural(len(targets), 'target')} in column {column + 1} of this sentence, but "
            f"{plural(len(arguments), 'column')} of arguments after it. {_COLUMNS}"
        )
    pairs = zip(targets, arguments, strict=True)
    frames = (Frame.of(target, _read_spans(rows, i), verb=True) for target, i in pairs)
    return Sentence.of(_read_words(rows, 0), frames)


def _read_words(rows: list[_Row], column: int) -> list[str]:
    return [unescape(row.fields[column]) for row in rows]


def _read_spans(rows: list[_Row], column: int) -> list[Span]:
    """Read a column of parenthesized arguments such as (A0* * *)."""
    unclosed: list[tuple[int, str]] = []
    spans = []
    for k, (line, fields) in enumerate(rows):
        cell = _CELL.fullmatch(fields[column])
        if cell is None:
            raise line.error(f"found '{fields[column][:40]}' in column {column + 1}. {_COLUMNS}")
        unclosed += [(k, label) for label in cell[1].split("(")[1:]]
        for _ in range(cell[2].count(")")):
            if not unclosed:
                raise line.error(f"unmatched ')' in column {column + 1}. {_COLUMNS}")
            start, label = unclosed.pop()
            spans.append(Span(start, k + 1, label))
    if unclosed:
        start, label = unclosed[-1]
        raise rows[start].line.error(f"argument '({label}*' is not closed. {_COLUMNS}")
    return sorted(spans)
