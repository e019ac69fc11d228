"""Read JSON data as pydantic models, with errors that name the file, the line and the key."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from elmokit.errors import DataError

M = TypeVar("M", bound=BaseModel)


def parse_json(kind: type[M], text: str | bytes, where: str, expected: str = "") -> M:
    """Parse a JSON value.

    Args:
        kind: The model to validate against.
        text: The JSON text.
        where: The file, or file and line, for errors.
        expected: A sentence that describes the expected format.

    Raises:
        DataError: The text is not valid JSON, or not such a value.
    """
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        keys = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in problem["loc"])
        path = "".join(keys).removeprefix(".")
        message = problem["msg"].removeprefix("Value error, ")
        location = f"{path}: " if path else ""
        raise DataError(f"{where}: {location}{message}. {expected}".rstrip()) from None
