"""How long work tells of itself: the library says it, and whoever asked decides what is shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

#: Called with a line for the user.
Tell = Callable[[str], None]
#: Called with what is done, how much of it, and how much it will be.
TellProgress = Callable[[str, int, int], None]


class Progress(NamedTuple):
    """How far work on text has gone.

    Attributes:
        tokens: Tokens that are done.
        n_bytes: Bytes of text read for them.
        total_bytes: Bytes of all text; None if only reading it can tell.
        bottleneck: The stage that the others wait for, if it is known.
    """

    tokens: int
    n_bytes: int
    total_bytes: int | None
    bottleneck: str = ""


def silent(*_: object) -> None:
    """Tell nobody."""


def plural(n: int, noun: str) -> str:
    """Return "1 sentence", "2,000 sentences"."""
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


def every_seconds(tell: Tell, seconds: float = 15.0) -> TellProgress:
    """Make lines of progress, not more than one in so many seconds.

    What is done faster than that is not told at all: the line before it said what it is.
    """
    begin = last = time.monotonic()

    def progress(name: str, done: int, total: int) -> None:
        nonlocal last
        now = time.monotonic()
        if done <= 0 or done >= total or now - last < seconds:
            return
        last = now
        left = (now - begin) / done * (total - done)
        tell(f"{name}: {done / total:.0%}, {left / 60:.1f} min left")

    return progress
