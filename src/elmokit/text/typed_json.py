"""Parse JSON as pydantic models, with error messages that contain the file, line and key."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ValidationError

from elmokit.errors import DataError

M = TypeVar("M", bound=BaseModel)


def parse_json(model: type[M], text: str | bytes, source: str, expected: str = "") -> M:
    """Parse a JSON value.

    Args:
        model: The pydantic model of the value.
        text: The JSON text.
        source: The file and line, for error messages.
        expected: A sentence that describes the expected format, for error messages.

    Raises:
        DataError: The text is not valid JSON, or does not match the model.
    """
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        keys = (f"[{key}]" if isinstance(key, int) else f".{key}" for key in problem["loc"])
        path = "".join(keys).removeprefix(".")
        message = problem["msg"].removeprefix("Value error, ")
        location = f"{path}: " if path else ""
        raise DataError(f"{source}: {location}{message}. {expected}".rstrip()) from None
