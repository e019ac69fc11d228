"""A JSON object in a file, read with errors that name the file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from elmokit.errors import ConfigError


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object."""
    try:
        values = json.loads(path.read_text("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"There is no file {path}.") from None
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not a readable JSON file: {error}.") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} should hold a JSON object, found {type(values).__name__}.")
    return values
