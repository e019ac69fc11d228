"""Ctrl-C, and the signals that a command should answer like it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

#: The exit code of a command that a signal has stopped.
INTERRUPTED = 130
_SOON = 0.05  # seconds


@contextmanager
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt on Ctrl-C and on SIGTERM, which `kill` and job schedulers send.

    Not in the middle of an import, though: packages that are half imported turn it into errors of
    their own, or swallow it. There it waits until the import is done.
    """
    numbers = [signal.SIGTERM, signal.SIGALRM]
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:  # as for jobs in the background
        numbers.append(signal.SIGINT)
    before = {number: signal.signal(number, _interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_: int, frame: FrameType | None) -> None:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            signal.setitimer(signal.ITIMER_REAL, _SOON)
            return
        frame = frame.f_back
    raise KeyboardInterrupt
