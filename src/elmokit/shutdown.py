"""Graceful shutdown on SIGINT and SIGTERM."""

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
    """An event that is set by the first SIGINT or SIGTERM."""

    can_interrupt = False

    def run_unless_stopped(self, work: Callable[[], T]) -> T | None:
        """Call `work`, and interrupt it when a signal arrives. `work` must be safe to repeat.

        Returns:
            The result of `work`, or None if it was interrupted or never started.
        """
        try:
            self.can_interrupt = True
            return None if self.is_set() else work()
        except KeyboardInterrupt:
            return None
        finally:
            self.can_interrupt = False


@contextmanager
def stop_signals(log: LogFn = no_log) -> Iterator[StopSignal]:
    """Turn SIGINT and SIGTERM into an event, so that a run can save its work before it stops.

    Args:
        log: Called with a message when the first signal arrives.
    """
    stop = StopSignal()

    def handle(signum: int, frame: FrameType | None) -> None:
        if not stop.is_set():
            stop.set()
            with suppress(RuntimeError):  # raised if the signal arrives during a print
                log("Stopping after this step ...")
        if stop.can_interrupt:
            raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    previous = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for signum, handler in previous.items():
            signal.signal(signum, handler)
