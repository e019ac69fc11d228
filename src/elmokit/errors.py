"""Everything elmokit raises on purpose, in one small tree.

A message says what was found, what was expected and what to do about it. The `elmo` command prints
such a message without a traceback and exits with 1.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ElmoError(Exception):
    """Base of all errors that elmokit raises on purpose."""


class ConfigError(ElmoError):
    """A configuration that does not describe a model."""


class WeightsError(ElmoError):
    """A weight file that is damaged, foreign, or of another shape than its configuration says."""


class DataError(ElmoError):
    """Text or tokens that cannot be used; the message names the file and the line."""


class OutputError(ElmoError):
    """A result that cannot be written: no permission, no space, or a file in the way."""


class DownloadError(ElmoError):
    """A published model that could not be fetched."""


class DependencyError(ElmoError):
    """A package that is not installed: an optional one, or torch where elmokit runs without it."""

    def __init__(self, package: str, extra: str | None, purpose: str) -> None:
        wanted = package if extra is None else f"'elmokit[{extra}]'"
        super().__init__(
            f"{purpose} needs the package '{package}', which is not installed. "
            f"Install it with: pip install {wanted}"
        )


class ElmoWarning(UserWarning):
    """Something that works but that the user should know."""


def nearest(word: object, known: Iterable[str]) -> str:
    """Return ' Did you mean ...?' for the known word closest to `word`, or an empty string."""
    matches = difflib.get_close_matches(str(word), list(known), n=1)
    return f" Did you mean '{matches[0]}'?" if matches else ""
