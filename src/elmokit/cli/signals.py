"""Handle SIGTERM like Ctrl-C."""

from __future__ import annotations

import signal

#: The exit code of an interrupted command.
INTERRUPTED = 130


def interrupt_on_sigterm() -> None:
    """Raise KeyboardInterrupt on SIGTERM, which `kill` and job schedulers send."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
