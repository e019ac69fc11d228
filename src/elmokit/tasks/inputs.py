"""Functions, shared by several tasks, for reading raw text, columns and JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, model_validator

from elmokit.text.lines import Line
from elmokit.text.sentences import tokenize_sentences
from elmokit.text.typed_json import M, parse_json

#: Longer sentences, which occur in text without punctuation, are split, because the memory usage of
#: some models is quadratic in the length.
MAX_TOKENS = 512

Offsets = tuple[tuple[int, int], ...]


def split_text(text: str) -> Iterator[tuple[tuple[str, ...], Offsets]]:
    """Split a text into sentences.

    Yields:
        The tokens of a sentence, and the character offsets (start, end) of each token in the text.
    """
    for sentence in tokenize_sentences(text):
        for start in range(0, len(sentence), MAX_TOKENS):
            part = sentence[start : start + MAX_TOKENS]
            yield tuple(t.text for t in part), tuple((t.start, t.end) for t in part)


def split_blocks(
    lines: Iterable[Line], is_separator: Callable[[Line], bool]
) -> Iterator[list[Line]]:
    """Yield the blocks of consecutive lines between separators, such as empty lines."""
    for is_separator_block, block in groupby(lines, key=is_separator):
        if not is_separator_block:
            yield list(block)


def is_blank(line: Line) -> bool:
    """Return whether a line is empty or contains only whitespace."""
    return not line.text.strip()


def _check_token(token: str) -> str:
    """Check that a token can be written in columns, and return it."""
    if not token.strip() or any(character in token for character in "\t\n\r"):
        raise ValueError(
            f"invalid token {json.dumps(token)[:60]}: tokens must not be blank or contain tabs or "
            "line breaks"
        )
    return token


Token = Annotated[str, AfterValidator(_check_token)]


class TextOrTokens(BaseModel, strict=True):
    """A JSON object with tokens or raw text."""

    tokens: list[Token] | None = None
    text: str | None = None

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        if self.tokens is None and self.text is None:
            raise ValueError('expected "tokens" (a list of strings) or "text" (a string)')
        return self


def read_objects(
    model: type[M], lines: Iterable[Line], expected: str = ""
) -> Iterator[tuple[Line, M]]:
    """Read the JSON object in each line that is not blank; see `parse_json`."""
    return ((line, read_object(model, line, expected)) for line in lines if not is_blank(line))


def read_object(model: type[M], line: Line, expected: str = "") -> M:
    """Read the JSON object in a line; see `parse_json`."""
    return parse_json(model, line.text, f"{line.path}, line {line.number}", expected)
