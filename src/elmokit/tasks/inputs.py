"""Readers of raw text and JSON lines that several tasks share."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, model_validator

from elmokit.text.lines import Line
from elmokit.text.sentences import tokenize_sentences
from elmokit.text.typed_json import M, parse_json

#: Longer sentences, which occur in text without punctuation, are split, because the cost of some
#: models is quadratic in the length.
MAX_TOKENS = 512

Offsets = tuple[tuple[int, int], ...]


def split_text(text: str) -> Iterator[tuple[tuple[str, ...], Offsets]]:
    """Split a text into sentences; yield the tokens of each and their (start, end) in the text."""
    for sentence in tokenize_sentences(text):
        for start in range(0, len(sentence), MAX_TOKENS):
            part = sentence[start : start + MAX_TOKENS]
            yield tuple(t.text for t in part), tuple((t.start, t.end) for t in part)


def _check_token(token: str) -> str:
    """Reject a token that cannot be written in columns."""
    if not token.strip() or any(character in token for character in "\t\n\r"):
        raise ValueError(
            f"invalid token {json.dumps(token)[:60]}: tokens must not be blank or contain tabs or "
            "line breaks"
        )
    return token


Token = Annotated[str, AfterValidator(_check_token)]


class TextOrTokens(BaseModel, strict=True):
    """Tokens or raw text."""

    tokens: list[Token] | None = None
    text: str | None = None

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.tokens is None and self.text is None:
            raise ValueError('expected "tokens" (a list of strings) or "text" (a string)')
        return self


def read_objects(
    kind: type[M], lines: Iterable[Line], expected: str = ""
) -> Iterator[tuple[Line, M]]:
    """Read a JSON object from each line that is not blank."""
    for line in lines:
        if line.text.strip():
            yield line, read_object(kind, line, expected)


def read_object(kind: type[M], line: Line, expected: str = "") -> M:
    """Read the JSON object in a line."""
    return parse_json(kind, line.text, f"{line.path}, line {line.number}", expected)
