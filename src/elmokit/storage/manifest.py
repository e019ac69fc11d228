"""Read and write JSON manifests, with helpful error messages."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from elmokit.errors import ConfigError, ElmoError
from elmokit.storage.atomic import write_text
from elmokit.storage.regular import check_regular_files, read_bounded

# Parsed JSON can take twenty times as much memory as the text.
_MAX_BYTES = 2**26


def write_json(path: Path, values: Mapping[str, Any], **options: Any) -> None:
    """Write a JSON object atomically.

    Args:
        path: The file.
        values: The object.
        options: Arguments for `json.dumps`. The default indent is 2.

    Raises:
        OutputError: The file cannot be written.
    """
    write_text(path, json.dumps(values, **{"indent": 2, **options}) + "\n")


def read_json(
    path: Path, *, error: type[ElmoError] = ConfigError, hint: str = ""
) -> dict[str, Any]:
    """Read a JSON object.

    Args:
        path: The file.
        error: The type of the error to raise if the file is missing, damaged or not a JSON object.
        hint: A sentence of advice for the error message.
    """
    check_regular_files(path, error)
    try:
        text = read_bounded(path, error, max_bytes=_MAX_BYTES)
    except FileNotFoundError:
        raise error(f"{path} does not exist. {hint}".rstrip()) from None
    except (OSError, ValueError) as reason:  # a NUL in the path raises a ValueError
        message = getattr(reason, "strerror", None) or reason
        raise error(f"{path} cannot be read: {message}. {hint}".rstrip()) from reason
    return parse_json(text, path, error=error, hint=hint)


def parse_json(
    text: bytes | str, source: object, *, error: type[ElmoError] = ConfigError, hint: str = ""
) -> dict[str, Any]:
    """Parse a JSON object.

    Args:
        text: The JSON text.
        source: The file or other source of the text, for the error message.
        error: The type of the error to raise if the text is not a JSON object.
        hint: A sentence of advice for the error message.
    """
    try:
        values = json.loads(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except (ValueError, RecursionError) as reason:
        raise error(f"{source} is not valid JSON: {reason}. {hint}".rstrip()) from reason
    if not isinstance(values, dict):
        kind = type(values).__name__
        raise error(f"{source} must contain a JSON object, got {kind}. {hint}".rstrip())
    return values


def check_format(
    values: Mapping[str, Any],
    source: object,
    name: str,
    newest: int,
    *,
    oldest: int = 1,
    error: type[ElmoError] = ConfigError,
    hint: str = "",
) -> None:
    """Raise an error if a manifest has an unexpected format or an unsupported version.

    Args:
        values: The manifest.
        source: The file or other source of the manifest, for the error message.
        name: The expected value of the key `format`.
        newest: The newest supported version.
        oldest: The oldest supported version.
        error: The type of the error.
        hint: A sentence of advice for manifests with an unexpected format or an old version.
    """
    if values.get("format") != name:
        value = values.get("format")
        raise error(f"{source}: 'format' should be '{name}', found {value!r}. {hint}".rstrip())
    version = values.get("format_version")
    if type(version) is int and version > newest:
        raise error(
            f"{source} was written by a newer elmokit (format version {version}; this version "
            f"supports up to {newest}). Upgrade with: pip install --upgrade elmokit"
        )
    if type(version) is not int or version < oldest:
        expected = f"{oldest}" if oldest == newest else f"{oldest} to {newest}"
        raise error(
            f"{source}: 'format_version' should be {expected}, found {version!r}. {hint}".rstrip()
        )
