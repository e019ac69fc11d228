"""Questions about passages: SQuAD v1.1 as it comes, and simpler forms of the same.

Answers are given by characters and predicted by tokens. Whatever does not fit between the two is
counted and reported; nothing is dropped silently.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

from elmokit.errors import DataError, warn
from elmokit.tasks.jsonl import check_text
from elmokit.text.lines import Line
from elmokit.text.sentences import tokenize_sentences
from elmokit.text.tokenize import words

#: Of a longer passage the first tokens are read: attention takes memory by the square of length.
LONGEST = 1000

_WANTED = (
    'Expected SQuAD v1.1: {"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", '
    '"question": "...", "answers": [{"text": "...", "answer_start": 0}]}]}]}]}; or one object '
    'per question: {"question": "...", "context": "...", "answers": [...]}.'
)
_PROBLEMS = {
    "unanswered": "questions without an answer were skipped: the model always predicts an answer",
    "empty": "answers are empty. They are ignored in training, but not in evaluation",
    "elsewhere": "answers are not at their answer_start, which counts characters from 0 (not bytes "
    "or UTF-16 units). They are ignored in training; evaluation compares their text",
    "inside": "answers begin or end inside a token. Training uses the whole token, so "
    "predictions may not match them exactly",
    "beyond": f"answers are after token {LONGEST:,} of their passages, where they are truncated. "
    "They are ignored in training; evaluation compares their text. Use shorter passages",
    "long": f"questions, or their passages, were truncated to {LONGEST:,} tokens. Use "
    "shorter texts",
}
_NAMED = 3

T = TypeVar("T")


@dataclass(frozen=True)
class Passage:
    """A text that is asked about, and its tokens, which know where they stand in it."""

    text: str
    tokens: tuple[str, ...] = field(repr=False)  # they follow from the text
    starts: tuple[int, ...] = field(repr=False)
    ends: tuple[int, ...] = field(repr=False)

    @classmethod
    def of(cls, text: str) -> Passage:
        """Find the sentences of a text, and their tokens."""
        found = [token for sentence in tokenize_sentences(text) for token in sentence]
        starts, ends = tuple(token.start for token in found), tuple(token.end for token in found)
        return cls(text, tuple(token.text for token in found), starts, ends)

    def __len__(self) -> int:
        return len(self.tokens)

    def between(self, start: int, end: int) -> Passage:
        """Return some of the tokens; they know their places in the whole text."""
        kept = slice(start, end)
        return Passage(self.text, self.tokens[kept], self.starts[kept], self.ends[kept])

    def cover(self, start: int, end: int) -> tuple[int, int]:
        """Return the first and the last token with some of the characters start:end.

        Where there is none, the last comes before the first.
        """
        return bisect_right(self.ends, start), bisect_left(self.starts, end) - 1


@dataclass(frozen=True)
class Question:
    """A question about a passage.

    Attributes:
        text: The question.
        tokens: Its tokens.
        passage: What it is about.
        id: What it is called in its file.
        answers: The gold answers, as text.
        spans: Their first and last tokens, of those that are in the passage.
    """

    text: str
    tokens: tuple[str, ...] = field(repr=False)
    passage: Passage
    id: str | None = None
    answers: tuple[str, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def texts(self) -> Sequence[Sequence[str]]:
        """What the biLM reads."""
        return (self.passage.tokens, self.tokens)

    @cached_property
    def starts(self) -> list[int]:
        """The tokens at which a gold answer begins."""
        return sorted({start for start, _ in self.spans})

    @cached_property
    def ends(self) -> list[int]:
        """The tokens at which a gold answer ends."""
        return sorted({end for _, end in self.spans})


def shortened(question: Question, longest: int) -> Question:
    """Cut a passage that is too long to a part with the first answer; others may be lost."""
    length = len(question.passage)
    if length <= longest or not question.spans:
        return question
    first, last = question.spans[0]
    start = 0
    if last >= longest:
        start = min(max(0, (first + last + 1 - longest) // 2), length - longest)
    end = start + longest
    spans = tuple((i - start, j - start) for i, j in question.spans if start <= i and j < end)
    return replace(question, passage=question.passage.between(start, end), spans=spans)


# ---------------------------------------------------------------------------------------- reading


def read_json(lines: Iterable[Line], *, labeled: bool) -> Iterator[Question]:
    """Read a file of JSON objects: SQuAD, or several files of it one behind the other.

    Args:
        lines: The lines of the file; an object may take one or many.
        labeled: Whether there are answers; if not, those that are there are passed over.
    """
    found = list(lines)
    if found:
        yield from _read(found[0].path, "\n".join(line.text for line in found), labeled=labeled)


def read_jsonl(lines: Iterable[Line]) -> Iterator[Question]:
    """Read lines of JSON: {"question": ..., "context": ...}."""
    for line in lines:
        yield from _read(f"{line.path}, line {line.number}", line.text, labeled=False)


def read_tabbed(lines: Iterable[Line]) -> Iterator[Question]:
    """Read lines of a question and its passage with a tab between."""
    for line in lines:
        if not line.text.strip() and "\t" not in line.text:
            continue
        question, tab, context = line.text.partition("\t")
        if not tab:
            raise line.error(
                f"found no tab in '{line.text[:60]}', expected a question and its passage, "
                "separated by a tab."
            )
        reader = _Reader(f"{line.path}, line {line.number}", labeled=False)
        yield from reader.questions({"question": question, "context": context})
        reader.tell()


def _read(path: str, text: str, *, labeled: bool) -> Iterator[Question]:
    reader, decoder = _Reader(path, labeled=labeled), json.JSONDecoder()
    text, place = text.strip(), 0
    while place < len(text):
        try:
            values, place = decoder.raw_decode(text, place)
            check_text(values, path)
        except (ValueError, RecursionError) as error:
            raise _wrong(path, f"invalid JSON ({error})") from error
        yield from reader.questions(values)
        while place < len(text) and text[place].isspace():
            place += 1
    reader.tell()


class _Reader:
    """Makes questions of JSON values, and remembers what did not fit."""

    def __init__(self, path: str, *, labeled: bool) -> None:
        self._path = path
        self._labeled = labeled
        self._odd: dict[str, list[str]] = {kind: [] for kind in _PROBLEMS}

    def questions(self, values: object) -> Iterator[Question]:
        """Yield the questions of a file of SQuAD, or of an object of one question."""
        if isinstance(values, dict) and "data" not in values:
            where = f"{self._path}{_id(values)}"
            yield from self._question(values, _passage(values, where), where)
            return
        for i, article in enumerate(_get(values, "data", list, self._path), 1):
            where = f"{self._path}, article {i}"
            for j, paragraph in enumerate(_get(article, "paragraphs", list, where), 1):
                here = f"{where}, paragraph {j}"
                passage = _passage(paragraph, here)
                for k, qa in enumerate(_get(paragraph, "qas", list, here), 1):
                    yield from self._question(qa, passage, f"{here}, question {k}{_id(qa)}")

    def tell(self) -> None:
        """Warn of what did not fit, once for each kind."""
        for kind, names in self._odd.items():
            if names:
                some = ", ".join(names[:_NAMED]) + (" and more" if len(names) > _NAMED else "")
                warn(f"{self._path}: {len(names):,} {_PROBLEMS[kind]}: {some}.")

    def _question(self, values: object, passage: Passage, where: str) -> Iterator[Question]:
        text = _get(values, "question", str, where)
        tokens = words(text)
        if not tokens:
            raise _wrong(where, "the question is empty")
        assert isinstance(values, dict)
        name = str(values["id"]) if "id" in values else None
        read = passage
        if max(len(passage), len(tokens)) > LONGEST:
            read = passage.between(0, LONGEST)
            self._note("long", name)
        question = Question(text, tuple(tokens[:LONGEST]), read, name)
        if not self._labeled:
            yield question
            return
        answers = list(_answers(values, where))
        if not answers:
            self._note("unanswered", name)
            return
        found = [self._span(answer, start, passage, name) for answer, start in answers]
        spans = tuple(dict.fromkeys(span for span in found if span is not None))
        yield replace(question, answers=tuple(answer for answer, _ in answers), spans=spans)

    def _span(
        self, answer: str, start: int, passage: Passage, name: str | None
    ) -> tuple[int, int] | None:
        """Find the tokens of an answer."""
        if not answer.strip():
            self._note("empty", name)
            return None
        end = start + len(answer)
        first, last = passage.cover(start, end)
        if start < 0 or passage.text[start:end] != answer or first > last:
            self._note("elsewhere", name)
            return None
        if last >= LONGEST:
            self._note("beyond", name)
            return None
        if passage.text[passage.starts[first] : passage.ends[last]] != answer.strip():
            self._note("inside", name)
        return first, last

    def _note(self, kind: str, name: str | None) -> None:
        self._odd[kind].append("no id" if name is None else f"id '{name}'")


def _passage(values: object, where: str) -> Passage:
    text = _get(values, "context", str, where)
    if not text.strip():
        raise _wrong(where, "the context is empty")
    return Passage.of(text)


def _answers(values: dict[str, object], where: str) -> Iterator[tuple[str, int]]:
    given = values.get("answers")
    if isinstance(given, dict):  # {"text": [...], "answer_start": [...]}, as some write it
        columns = [_get(given, key, list, where) for key in ("text", "answer_start")]
        if len(columns[0]) != len(columns[1]):
            raise _wrong(where, f"found {len(columns[0])} answers, but {len(columns[1])} positions")
        given = [
            {"text": text, "answer_start": start} for text, start in zip(*columns, strict=True)
        ]
    for answer in _get({"answers": given}, "answers", list, where):
        yield _get(answer, "text", str, where), _get(answer, "answer_start", int, where)


def _get(values: object, key: str, kind: type[T], where: str) -> T:
    found = values.get(key) if isinstance(values, dict) else None
    if not isinstance(found, kind):
        names: dict[type, str] = {str: "a string", list: "a list", int: "an integer"}
        raise _wrong(where, f'missing or invalid "{key}": expected {names[kind]}')
    return found


def _id(values: object) -> str:
    return f" (id '{values['id']}')" if isinstance(values, dict) and "id" in values else ""


def _wrong(where: str, problem: str) -> DataError:
    return DataError(f"{where}: {problem}. {_WANTED}")
