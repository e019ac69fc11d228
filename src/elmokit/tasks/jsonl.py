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
    for line in lines:
        if not line.text.strip():
            continue
        try:
            values = json.loads(line.text)
        except (ValueError, RecursionError):
            values = None
        yield line, values if isinstance(values, dict) else {}


def are_strings(values: object) -> TypeGuard[list[str]]:
    """Tell whether this is a list of strings."""
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def not_expected(line: Line, expected: str) -> DataError:
    """Return the error of a line that is something else."""
    return DataError(
        f"{line.path}, line {line.number}: found '{line.text[:60]}', expected an object with "
        f"{expected}."
    )
