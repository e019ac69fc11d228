"""Predicates and their arguments, from the forms in which PropBank and its like are passed on.

- Lines of JSON: {"words": [...], "pos": [...], "frames": [{"pred": 1, "args": [[0, 0, "ARG0"]]}]},
  the last token of an argument included; "pos" may be missing. Or as `predict --json` writes them:
  {"tokens": [...], "frames": [{"predicate": 1, "roles": [{"label": "A0", "start": 0, "end": 1}]}]},
  where "end" is the first token behind an argument.
- Columns of CoNLL-2005: words, anything, the target verbs ("-" where there is none), then a column
  of arguments such as (A0* * *) for each target.
- Columns of CoNLL-2012, the *_gold_conll files of OntoNotes, known by their "#begin document".

A file is taken for JSON if its first line looks like it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

from elmokit.errors import warn
from elmokit.tasks.classify import treebank_tokens
from elmokit.tasks.jsonl import are_strings, check_tokens, json_object, json_objects
from elmokit.tasks.metrics.spans import Span, tags_of
from elmokit.tasks.metrics.srl import PREDICATE
from elmokit.text.lines import Line
from elmokit.text.sentences import tokenize_sentences

NO_TARGET = "-"
#: A sentence with more tokens is cut into pieces: its cost is predicates times tokens.
LONGEST = 512

_ONTONOTES = "_conll"  # how the names of its files end
_BOUND = re.compile(r"#\s*(?:begin|end) document")  # of a document, in CoNLL-2012
_OBJECT = re.compile(r"\s*\{\s*(?:[\"'}]|$)")  # and no row whose word begins with a brace
_WORD, _POS, _ROLES = 3, 4, 11  # columns of CoNLL-2012; behind the roles is one of coreference
_LABEL = re.compile(r"[^()*\s]+")  # that columns can hold
_CELL = re.compile(r"((?:\([^()*]+)*)\*((?:[^()*]*\))*)")
_JSON = (
    'Expected an object with "words" (a list of strings) and "frames" (a list of objects such as '
    '{"pred": 1, "args": [[0, 0, "ARG0"], [2, 4, "ARG1"]]}, or in the format of predict --json: '
    '{"predicate": 1, "roles": [{"label": "ARG0", "start": 0, "end": 1}]}).'
)
_COLUMNS = (
    "Expected one word per line, followed by a column of target verbs ('-' if it is not a target) "
    "and one column of arguments per target, such as (A0* * *), and an empty line after each "
    "sentence."
)


@dataclass(frozen=True)
class Frame:
    """A predicate and its arguments.

    Attributes:
        predicate: The place of the predicate among the tokens.
        arguments: The spans of the arguments, the predicate itself (V) among them.
        verb: Whether it is a verb, as far as is known.
        beyond: Arguments that reach over the end of a piece of a very long sentence.
    """

    predicate: int
    arguments: tuple[Span, ...] = ()
    verb: bool = True
    # Not in the repr, of which the digest of a run's data is made: earlier runs can be resumed.
    beyond: tuple[Span, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, predicate: int, spans: Iterable[Span], *, verb: bool) -> Frame:
        """Make a frame; where none of the spans is called V, the predicate is."""
        found = set(spans)
        if not any(span.type == PREDICATE for span in found):
            found.add(Span(predicate, predicate + 1, PREDICATE))
        return cls(predicate, tuple(sorted(found)), verb)

    def within(self, start: int, end: int) -> Frame:
        """Return the frame as it is in tokens start, ..., end - 1; the predicate is one of them."""
        moved = [Span(a - start, b - start, label) for a, b, label in self.arguments]
        inside = [span for span in moved if span.start >= 0 and span.end <= end - start]
        found = Frame.of(self.predicate - start, inside, verb=self.verb)
        left = (span for span in moved if span not in inside and span.type != PREDICATE)
        return replace(found, beyond=tuple(left))

    @property
    def gold(self) -> tuple[Span, ...]:
        """All arguments, as they count in the score."""
        return self.arguments + self.beyond

    @cached_property
    def apart(self) -> tuple[Span, ...]:
        """The arguments that tags can hold: of two that overlap V, else the longer one."""
        kept: list[Span] = []
        order = sorted(self.arguments, key=lambda s: (s.type != PREDICATE, s.start - s.end, s))
        for span in order:
            if all(span.end <= other.start or other.end <= span.start for other in kept):
                kept.append(span)
        return tuple(sorted(kept))


@dataclass(frozen=True)
class Sentence:
    """A sentence and its predicates.

    Attributes:
        tokens: Its tokens.
        frames: Its predicates with their arguments; None: they are to be predicted.
        predicates: The places of its predicates; None: they are to be found.
        offsets: (start, end) of each token in its line, if it was raw text.
    """

    tokens: tuple[str, ...]
    frames: tuple[Frame, ...] | None = None
    predicates: tuple[int, ...] | None = None
    offsets: tuple[tuple[int, int], ...] | None = None

    @classmethod
    def of(cls, tokens: Sequence[str], frames: Iterable[Frame]) -> Sentence:
        """Make a sentence with its frames."""
        found = tuple(frames)
        return cls(tuple(tokens), found, tuple(frame.predicate for frame in found))

    @property
    def texts(self) -> Sequence[Sequence[str]]:
        """What the biLM reads."""
        return (self.tokens,)

    @cached_property
    def tags(self) -> list[str]:
        """The tags of the first frame."""
        assert self.frames
        return tags_of(self.frames[0].apart, len(self.tokens))


def cut(sentence: Sentence) -> list[Sentence]:
    """Cut a very long sentence into pieces; any other is returned as it is."""
    if (length := len(sentence.tokens)) <= LONGEST:
        return [sentence]
    starts = range(0, length, LONGEST)
    return [_piece(sentence, start, min(start + LONGEST, length)) for start in starts]


def _piece(sentence: Sentence, start: int, end: int) -> Sentence:
    frames, places, offsets = sentence.frames, sentence.predicates, sentence.offsets
    if frames is not None:
        frames = tuple(f.within(start, end) for f in frames if start <= f.predicate < end)
    if places is not None:
        places = tuple(place - start for place in places if start <= place < end)
    if offsets is not None:
        offsets = offsets[start:end]
    return Sentence(sentence.tokens[start:end], frames, places, offsets)


def _pieces(sentence: Sentence, line: Line) -> list[Sentence]:
    """Cut a very long sentence, and say so."""
    pieces = cut(sentence)
    if len(pieces) > 1:
        warn(
            f"{line.path}, line {line.number}: split a sentence of {len(sentence.tokens):,} "
            f"tokens into pieces of {LONGEST}. Check for missing line breaks."
        )
    return pieces


def read_frames(path: str, lines: Iterable[Line]) -> Iterator[Sentence]:
    """Read labeled sentences in any of the three forms."""
    lines = list(lines)
    first = next((line.text for line in lines if line.text.strip()), "")
    if _OBJECT.match(first):
        return (_json_sentence(line) for line in lines if line.text.strip())
    if path.endswith(_ONTONOTES) or any(_BOUND.match(line.text) for line in lines):
        return (_conll2012_sentence(rows) for rows in _blocks(lines, comments=True))
    return _conll2005_sentences(list(_blocks(lines, comments=False)))


# ------------------------------------------------------------------------------------------- JSON


def _json_sentence(line: Line) -> Sentence:
    values = json_object(line)
    tokens, frames, pos = _json_tokens(line, values), values.get("frames"), values.get("pos")
    if not isinstance(frames, list):
        raise line.error(f'missing "frames". {_JSON}')
    if pos is not None and (not isinstance(pos, list) or len(pos) != len(tokens)):
        raise line.error(f'"pos" must be a list with one value per word. {_JSON}')
    return Sentence.of(tokens, (_json_frame(line, frame, len(tokens), pos) for frame in frames))


def _json_frame(line: Line, frame: Any, length: int, pos: list[Any] | None) -> Frame:
    match frame:
        case {"pred": place, "args": [*args]} | {"predicate": place, "roles": [*args]}:
            (predicate,) = _places(line, [place], length)
            spans = [_json_span(line, arg, predicate, length) for arg in args]
            verb = pos is None or str(pos[predicate]).startswith("V")
            return Frame.of(predicate, spans, verb=verb)
    raise line.error(f"invalid frame {str(frame)[:60]}. {_JSON}")


def _json_span(line: Line, arg: Any, predicate: int, length: int) -> Span:
    match arg:
        case [int(start), int(last), str(label)]:
            span = Span(start, last + 1, label)
        case {"start": int(start), "end": int(end), "label": str(label)}:
            span = Span(start, end, label)
        case _:
            span = Span(0, 0, "")
    if not 0 <= span.start < span.end <= length or not _LABEL.fullmatch(span.type):
        raise line.error(
            f"invalid argument {str(arg)[:60]} of predicate {predicate} in a sentence of "
            f"{length} words. {_JSON}"
        )
    return span


def read_jsonl(lines: Iterable[Line]) -> Iterator[Sentence]:
    """Read sentences to predict on: {"tokens": [...], "predicates": [...]} or {"text": "..."}.

    "words" is the same as "tokens". Where there is no "predicates", those of "frames" are taken,
    and where there are neither, they are to be found.
    """
    for line, values in json_objects(lines):
        if isinstance(values.get("text"), str):
            if "predicates" in values:
                raise line.error('"predicates" requires "tokens", not "text".')
            yield from read_text([line._replace(text=values["text"])])
            continue
        tokens, places = _json_tokens(line, values), values.get("predicates")
        if places is None and isinstance(frames := values.get("frames"), list):
            places = [_predicate(frame) for frame in frames]
        if places is not None:
            places = _places(line, places, len(tokens))
        yield from _pieces(Sentence(tokens, predicates=places), line)


def _predicate(frame: Any) -> Any:
    return frame.get("pred", frame.get("predicate")) if isinstance(frame, dict) else None


def read_text(lines: Iterable[Line]) -> Iterator[Sentence]:
    """Find the sentences in lines of raw text, and tokenize them."""
    for line in lines:
        for found in tokenize_sentences(line.text):
            offsets = tuple((token.start, token.end) for token in found)
            sentence = Sentence(tuple(token.text for token in found), offsets=offsets)
            yield from _pieces(sentence, line)


def _json_tokens(line: Line, values: dict[str, Any]) -> tuple[str, ...]:
    tokens = values.get("words", values.get("tokens"))
    if not are_strings(tokens):
        raise line.error(f'missing "words" or "tokens" (a list of strings). {_JSON}')
    check_tokens(tokens, line)
    return tuple(tokens)


def _places(line: Line, places: Any, length: int) -> tuple[int, ...]:
    """Check the places of predicates."""
    is_list = isinstance(places, list) and all(type(place) is int for place in places)
    if not is_list or not set(places) <= set(range(length)) or len(set(places)) < len(places):
        raise line.error(
            f"invalid predicates {str(places)[:40]} in a sentence of {length} words. Expected "
            "distinct word positions, counted from 0."
        )
    return tuple(places)


# ---------------------------------------------------------------------------------------- columns


class _Row(NamedTuple):
    """A line in columns."""

    line: Line
    fields: list[str]


def _blocks(lines: Iterable[Line], *, comments: bool) -> Iterator[list[_Row]]:
    """Yield the rows of each sentence, and check that they have as many columns."""
    rows: list[_Row] = []
    for line in lines:
        fields = line.text.split()
        if not fields or (comments and _is_comment(line.text, fields)):
            if rows:
                yield rows
            rows = []
            continue
        if rows and len(fields) != len(rows[0].fields):
            wanted = f"{len(rows[0].fields)}, as in the line above"
            raise line.error(f"found {len(fields)} columns, expected {wanted}. {_COLUMNS}")
        rows.append(_Row(line, fields))
    if rows:
        yield rows


def _is_comment(text: str, fields: list[str]) -> bool:
    """Tell a comment of CoNLL-2012 from a row of a document whose name begins with "#"."""
    if _BOUND.match(text):
        return True
    is_row = len(fields) > _ROLES and fields[1].isdecimal() and fields[2].isdecimal()
    return text.startswith("#") and not is_row


def _conll2012_sentence(rows: list[_Row]) -> Sentence:
    line, fields = rows[0]
    if len(fields) <= _ROLES:
        raise line.error(
            f"found {len(fields)} columns, expected {_ROLES + 1} or more (CoNLL-2012)."
        )
    frames = []
    for column in range(_ROLES, len(fields) - 1):
        spans = _spans(rows, column)
        place = next((span.start for span in spans if span.type == PREDICATE), None)
        if place is None:
            raise line.error(f"column {column + 1} has no predicate (V*).")
        verb = rows[place].fields[_POS].startswith("V")
        frames.append(Frame.of(place, spans, verb=verb))
    return Sentence.of(_words(rows, _WORD), frames)


def _conll2005_sentences(blocks: Sequence[list[_Row]]) -> Iterator[Sentence]:
    """Find the column of targets: the one with as many targets as there are columns behind it."""
    columns: set[int] | None = None
    for rows in blocks:
        fits = {
            column
            for column in range(len(rows[0].fields))
            if len(_targets(rows, column)) == len(rows[0].fields) - column - 1
        }
        columns = fits if columns is None else columns & fits
        if not columns:
            raise rows[0].line.error(f"this sentence has no column of targets. {_COLUMNS}")
        if columns == {0}:
            raise rows[0].line.error(
                "found targets and arguments, but no words before them. Join the files of words "
                "and props: paste -d' ' WORDS PROPS."
            )
    column = max(columns or {1})
    for rows in blocks:
        targets = _targets(rows, column)
        yield Sentence.of(
            _words(rows, 0),
            (
                Frame.of(place, _spans(rows, column + number), verb=True)
                for number, place in enumerate(targets, start=1)
            ),
        )


def _targets(rows: list[_Row], column: int) -> list[int]:
    return [place for place, row in enumerate(rows) if row.fields[column] != NO_TARGET]


def _words(rows: list[_Row], column: int) -> list[str]:
    """Return the words as text has them: brackets are brackets again."""
    return [treebank_tokens([row.fields[column]], row.line)[0] for row in rows]


def _spans(rows: list[_Row], column: int) -> list[Span]:
    """Read a column of brackets such as (A0* * *)."""
    opened: list[tuple[int, str]] = []
    found = []
    for place, (line, fields) in enumerate(rows):
        cell = _CELL.fullmatch(fields[column])
        if cell is None:
            raise line.error(f"found '{fields[column][:40]}' in column {column + 1}. {_COLUMNS}")
        opened += [(place, label) for label in cell[1].split("(")[1:]]
        for _ in range(cell[2].count(")")):
            if not opened:
                raise line.error(f"unmatched closing bracket in column {column + 1}. {_COLUMNS}")
            start, label = opened.pop()
            found.append(Span(start, place + 1, label))
    if opened:
        start, label = opened[-1]
        raise rows[start].line.error(f"argument '({label}*' is not closed. {_COLUMNS}")
    return sorted(found)
