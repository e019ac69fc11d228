"""Reading of JSON lines, shared by several tasks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

from elmokit.errors import DataError
from elmokit.text.lines import Line


def json_objects(lines: Iterable[Line]) -> Iterator[tuple[Line, dict[str, Any]]]:
    """Read an object from every line that is not empty.

    Other values are read as an object without keys, so that the task reports what is missing and
    what it expects.
    """
    return ((line, json_object(line)) for line in lines if line.text.strip())


def json_object(line: Line) -> dict[str, Any]:
    """Read the object in a line; other values are read as an empty object.

    Raises:
        DataError: A string contains a lone surrogate.
    """
    try:
        values = json.loads(line.text)
        check_text(values, f"{line.path}, line {line.number}")
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def check_text(values: object, where: str) -> None:
    """Reject lone surrogates, which JSON allows but UTF-8 output cannot represent.

    Args:
        values: JSON values; all strings in them are checked.
        where: File and line.
    """
    try:
        json.dumps(values, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = json.dumps(error.object[error.start])
        raise DataError(
            f"{where}: lone surrogate {half} in a string. Write both halves of the pair, "
            r'such as "\ud83d\ude00", or remove it.'
        ) from None


def check_tokens(tokens: Iterable[str], line: Line) -> None:
    """Reject tokens that cannot be written in columns."""
    for token in tokens:
        if not token.strip() or any(character in token for character in "\t\n\r"):
            raise line.error(
                f"invalid token {json.dumps(token)[:60]}: tokens must not be blank or contain tabs "
                "or line breaks. Clean or remove it."
            )


def are_strings(values: object) -> TypeGuard[list[str]]:
    """Return whether this is a list of strings."""
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def not_expected(line: Line, expected: str) -> DataError:
    """Return the error for a line that is not the expected object."""
    return line.error(f"found '{line.text[:60]}', expected an object with {expected}.")
