"""Callbacks for messages and progress. The caller decides what to display."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

#: Called with a message for the user.
LogFn = Callable[[str], None]
#: Called with the name of the current stage, the amount of completed work, and the total amount.
ProgressFn = Callable[[str, int, int], None]


class Progress(NamedTuple):
    """The progress of reading a text.

    Attributes:
        tokens: Number of processed tokens.
        n_bytes: Number of bytes read.
        total_bytes: Size of the whole text in bytes, or None if unknown.
        bottleneck: The slowest stage, if known.
    """

    tokens: int
    n_bytes: int
    total_bytes: int | None
    bottleneck: str = ""


def no_log(*_: object) -> None:
    """Ignore a message or a progress report."""


def plural(n: int, noun: str) -> str:
    """Return a number with a noun, such as "1 sentence" or "2,000 sentences"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"
