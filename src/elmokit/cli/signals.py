"""Ctrl-C, and SIGTERM answered like it."""

from __future__ import annotations

import signal

#: The exit code of a command that a signal has stopped.
INTERRUPTED = 130


def interrupt_on_sigterm() -> None:
    """Raise KeyboardInterrupt on SIGTERM, which `kill` and job schedulers send, as on Ctrl-C."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
