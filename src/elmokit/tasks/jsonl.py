"""Lines of JSON, as several tasks read them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, TypeGuard

from elmokit.errors import DataError
from elmokit.text.lines import Line


def json_objects(lines: Iterable[Line]) -> Iterator[tuple[Line, dict[str, Any]]]:
    """Read an object from every line that is not empty.

    What is no object is read as one without keys: the task finds that something is missing, and
    says what it expects.
    """
    return ((line, json_object(line)) for line in lines if line.text.strip())


def json_object(line: Line) -> dict[str, Any]:
    """Read the object in a line; what is none is read as an empty one.

    Raises:
        DataError: A string in it is no text.
    """
    try:
        values = json.loads(line.text)
        check_text(values, f"{line.path}, line {line.number}")
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def check_text(values: object, where: str) -> None:
    """Refuse half of a surrogate pair, which JSON can write and no output could hold.

    Args:
        values: What was read of JSON; all strings in it are checked.
        where: File and line.
    """
    try:
        json.dumps(values, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        half = json.dumps(error.object[error.start])
        raise DataError(
            f"{where}: found {half}, half of a surrogate pair, in a string. Write both halves, as "
            r'in "\ud83d\ude00", or leave it out.'
        ) from None


def check_tokens(tokens: Iterable[str], line: Line) -> None:
    """Refuse tokens that columns, a token per line, could not hold."""
    for token in tokens:
        if not token.strip() or any(character in token for character in "\t\n\r"):
            raise line.error(
                f"found the token {json.dumps(token)[:60]}, expected tokens that are not blank and "
                "hold no tab or line break. Clean it, or leave it out."
            )


def are_strings(values: object) -> TypeGuard[list[str]]:
    """Tell whether this is a list of strings."""
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def not_expected(line: Line, expected: str) -> DataError:
    """Return the error of a line that is something else."""
    return line.error(f"found '{line.text[:60]}', expected an object with {expected}.")
