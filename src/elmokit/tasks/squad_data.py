"""Questions about passages, from SQuAD v1.1 files and simpler formats.

The files specify answers by character offsets, whereas the model predicts tokens. Answers that
cannot be converted are counted and reported.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, BeforeValidator

from elmokit.errors import DataError, warn
from elmokit.text.lines import Line
from elmokit.text.sentences import tokenize_sentences
from elmokit.text.tokenize import words
from elmokit.text.typed_json import parse_json

#: Longer texts are truncated, because the memory usage of attention is quadratic in the length.
MAX_TOKENS = 1000

_EXPECTED = (
    'Expected SQuAD v1.1: {"data": [{"paragraphs": [{"context": "...", "qas": [{"id": "...", '
    '"question": "...", "answers": [{"text": "...", "answer_start": 0}]}]}]}]}; or one object '
    'per question: {"question": "...", "context": "...", "answers": [...]}.'
)


class _Issue(NamedTuple):
    """A kind of problem in the data.

    Attributes:
        summary: What is wrong.
        consequence: What the problem means for training and evaluation.
    """

    summary: str
    consequence: str


_UNANSWERED = _Issue("skipped questions without an answer", "The model always predicts an answer.")
_MISPLACED = _Issue(
    "answers that are empty or do not occur at answer_start",
    "answer_start must count characters from 0 (not bytes or UTF-16 code units). These answers are "
    "ignored during training. Evaluation uses only their text.",
)
_PARTIAL = _Issue(
    "answers that begin or end inside a token",
    "Training uses the whole token, so predictions may not match these answers exactly.",
)
_TRUNCATED = _Issue(
    f"questions or passages truncated to {MAX_TOKENS:,} tokens",
    "Answers beyond the limit are ignored during training, but not in evaluation. Use shorter "
    "texts.",
)
_MAX_LISTED_IDS = 3  # per warning

#: The ids of the questions with each kind of problem.
_Issues = dict[_Issue, list[str]]


@dataclass(frozen=True)
class Passage:
    """A text and its tokens with their character offsets."""

    text: str
    tokens: tuple[str, ...] = field(repr=False)  # derived from the text
    starts: tuple[int, ...] = field(repr=False)
    ends: tuple[int, ...] = field(repr=False)

    @classmethod
    def of(cls, text: str) -> Passage:
        """Split a text into sentences and tokens."""
        tokens = [token for sentence in tokenize_sentences(text) for token in sentence]
        starts, ends = tuple(token.start for token in tokens), tuple(token.end for token in tokens)
        return cls(text, tuple(token.text for token in tokens), starts, ends)

    def __len__(self) -> int:
        return len(self.tokens)

    def select_tokens(self, start: int, end: int) -> Passage:
        """Return a passage with the same text, but only some of its tokens."""
        part = slice(start, end)
        return Passage(self.text, self.tokens[part], self.starts[part], self.ends[part])

    def overlapping_tokens(self, start: int, end: int) -> tuple[int, int]:
        """Return the indices of the first and last tokens that overlap the characters start:end.

        If no token overlaps them, the second index is less than the first.
        """
        return bisect_right(self.ends, start), bisect_left(self.starts, end) - 1


@dataclass(frozen=True)
class Question:
    """A question about a passage.

    Attributes:
        text: The question.
        tokens: The tokens of the question.
        passage: The passage.
        id: The id in the file.
        answers: The texts of the gold answers.
        spans: The first and last token of each answer that was located in the passage.
    """

    text: str
    tokens: tuple[str, ...] = field(repr=False)
    passage: Passage
    id: str | None = None
    answers: tuple[str, ...] = ()
    spans: tuple[tuple[int, int], ...] = ()

    @property
    def texts(self) -> Sequence[Sequence[str]]:
        """The tokenized texts for the biLM."""
        return (self.passage.tokens, self.tokens)


def truncate_passage(question: Question, max_tokens: int) -> Question:
    """Truncate a long passage, but keep the first answer. Other answers may be lost."""
    length = len(question.passage)
    if length <= max_tokens or not question.spans:
        return question
    first, last = question.spans[0]
    start = 0
    if last >= max_tokens:
        start = min(max(0, (first + last + 1 - max_tokens) // 2), length - max_tokens)
    end = start + max_tokens
    spans = tuple((i - start, j - start) for i, j in question.spans if start <= i and j < end)
    return replace(question, passage=question.passage.select_tokens(start, end), spans=spans)


# ---------------------------------------------------------------------------------------- formats


def _check_text(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty")
    return text


def _read_columns(answers: Any) -> Any:
    """Convert answers in another common format, {"text": [...], "answer_start": [...]}."""
    match answers:
        case {"text": list(texts), "answer_start": list(starts)} if len(texts) == len(starts):
            pairs = zip(texts, starts, strict=True)
            return [{"text": text, "answer_start": start} for text, start in pairs]
    return answers


_Text = Annotated[str, AfterValidator(_check_text)]


class _Answer(BaseModel, strict=True):
    text: str
    answer_start: int


class _Question(BaseModel, strict=True):
    question: _Text
    id: str | int | None = None
    answers: Annotated[list[_Answer] | None, BeforeValidator(_read_columns)] = None


class _Paragraph(BaseModel, strict=True):
    context: _Text
    qas: list[_Question]


class _Article(BaseModel, strict=True):
    paragraphs: list[_Paragraph]


class _Squad(BaseModel, strict=True):
    data: list[_Article]


class _StandaloneQuestion(_Question):
    context: _Text


# ---------------------------------------------------------------------------------------- reading


def read_json(lines: Iterable[Line], *, labeled: bool) -> Iterator[Question]:
    """Read a file of JSON objects: a SQuAD file, or several concatenated ones.

    Args:
        lines: The lines of the file; an object may span several lines.
        labeled: Whether to read the answers.
    """
    lines = list(lines)
    if lines:
        yield from _read(lines[0].path, "\n".join(line.text for line in lines), labeled=labeled)


def read_jsonl(lines: Iterable[Line]) -> Iterator[Question]:
    """Read JSON lines: {"question": ..., "context": ...}."""
    for line in lines:
        yield from _read(f"{line.path}, line {line.number}", line.text, labeled=False)


def read_tabbed(lines: Iterable[Line]) -> Iterator[Question]:
    """Read lines that contain a question and its passage, separated by a tab."""
    for line in lines:
        if not line.text.strip() and "\t" not in line.text:
            continue
        question, tab, context = line.text.partition("\t")
        if not tab or not question.strip() or not context.strip():
            raise line.error(
                f"found '{line.text[:60]}', expected a question and a passage separated by a tab."
            )
        text = json.dumps({"question": question, "context": context})
        yield from read_jsonl([line._replace(text=text)])


def _read(path: str, text: str, *, labeled: bool) -> Iterator[Question]:
    issues: _Issues = defaultdict(list)
    decoder = json.JSONDecoder()
    text, position = text.strip(), 0
    while position < len(text):
        try:
            values, end = decoder.raw_decode(text, position)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: invalid JSON ({error}). {_EXPECTED}") from error
        if isinstance(values, dict) and "data" not in values:
            single = parse_json(_StandaloneQuestion, text[position:end], path, _EXPECTED)
            paragraphs = [_Paragraph(context=single.context, qas=[single])]
        else:
            squad = parse_json(_Squad, text[position:end], path, _EXPECTED)
            paragraphs = [part for article in squad.data for part in article.paragraphs]
        for paragraph in paragraphs:
            passage = Passage.of(paragraph.context)
            for item in paragraph.qas:
                if labeled and item.answers is None:
                    raise DataError(
                        f'{path}: missing "answers" in a question with {_format_id(item)}. '
                        f"{_EXPECTED}"
                    )
                if labeled and not item.answers:
                    issues[_UNANSWERED].append(_format_id(item))
                else:
                    answers = item.answers if labeled and item.answers else []
                    yield _make_question(item, passage, answers, issues)
        position = end
        while text[position : position + 1].isspace():
            position += 1
    for issue, ids in issues.items():
        listed = ", ".join(ids[:_MAX_LISTED_IDS]) + (", ..." if len(ids) > _MAX_LISTED_IDS else "")
        warn(f"{path}: {issue.summary}: {len(ids):,} ({listed}). {issue.consequence}")


def _make_question(
    item: _Question, passage: Passage, answers: Sequence[_Answer], issues: _Issues
) -> Question:
    tokens = words(item.question)
    if max(len(passage), len(tokens)) > MAX_TOKENS:
        issues[_TRUNCATED].append(_format_id(item))
    spans: dict[tuple[int, int], None] = {}  # distinct, in the order of the answers
    for answer in answers:
        start, end = answer.answer_start, answer.answer_start + len(answer.text)
        first, last = passage.overlapping_tokens(start, end)
        is_at_offset = start >= 0 and passage.text[start:end] == answer.text
        if not is_at_offset or not answer.text.strip() or first > last:
            issues[_MISPLACED].append(_format_id(item))
        elif last < MAX_TOKENS:
            if passage.text[passage.starts[first] : passage.ends[last]] != answer.text.strip():
                issues[_PARTIAL].append(_format_id(item))
            spans[first, last] = None
    return Question(
        item.question,
        tuple(tokens[:MAX_TOKENS]),
        passage if len(passage) <= MAX_TOKENS else passage.select_tokens(0, MAX_TOKENS),
        None if item.id is None else str(item.id),
        tuple(answer.text for answer in answers),
        tuple(spans),
    )


def _format_id(question: _Question) -> str:
    return "no id" if question.id is None else f"id '{question.id}'"
