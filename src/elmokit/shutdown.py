"""Graceful shutdown: handle SIGINT and SIGTERM so that a run saves before it stops."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

from elmokit.progress import LogFn, no_log

T = TypeVar("T")


class StopSignal(threading.Event):
    """Set by the first SIGINT or SIGTERM."""

    interrupts = False

    def run_unless_stopped(self, work: Callable[[], T]) -> T | None:
        """Call `work`, which must be safe to repeat, and interrupt it when the signal arrives.

        Returns:
            Its result, or None if it was interrupted.
        """
        try:
            self.interrupts = True
            return None if self.is_set() else work()
        except KeyboardInterrupt:
            return None
        finally:
            self.interrupts = False


@contextmanager
def stop_signals(log: LogFn = no_log) -> Iterator[StopSignal]:
    """Turn SIGINT and SIGTERM into an event, so that a run saves before it stops.

    Args:
        log: Called at the first signal with a line for the user.
    """
    stopped = StopSignal()

    def handle(_: int, __: FrameType | None) -> None:
        if not stopped.is_set():
            stopped.set()
            with suppress(RuntimeError):  # the signal arrived during a print
                log("Stopping after this step ...")
        if stopped.interrupts:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    before = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
