"""Progress on stderr: messages, and progress bars on a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from elmokit.cli.output import log
from elmokit.progress import LogFn, Progress, ProgressFn, no_log

_KNOWN_SIZE = "{percentage:3.0f}%|{bar}| {desc} [{elapsed}, {remaining} left]"
_UNKNOWN_SIZE = "{desc} [{elapsed}]"


def stderr_logger(*, shown: bool = True) -> LogFn:
    """Return a callback that prints messages to stderr, or ignores them."""
    return log if shown else no_log


class TokenBar:
    """A progress bar with tokens per second, and the remaining time if the size is known.

    Args:
        shown: Whether to show the bar; it is never shown without a terminal.

    Attributes:
        started: Whether progress was reported.
    """

    def __init__(self, *, shown: bool = True) -> None:
        from tqdm import tqdm

        # By default tqdm shares its lock with other processes through a helper process, which
        # prints an error when this process is killed.
        tqdm.set_lock(threading.RLock())
        self.started = False
        self._tokens_before = 0
        self._start = 0.0
        self._bar = tqdm(disable=not (shown and sys.stderr.isatty()), bar_format=_UNKNOWN_SIZE)

    def __call__(self, progress: Progress) -> None:
        """Update the bar."""
        if not self.started:
            # Do not count the tokens of an interrupted run as speed.
            self.started = True
            self._tokens_before = progress.tokens
            self._start = time.monotonic()
            self._bar.bar_format = _UNKNOWN_SIZE if progress.total_bytes is None else _KNOWN_SIZE
            self._bar.reset(progress.total_bytes)
            self._bar.initial = self._bar.n = self._bar.last_print_n = progress.n_bytes
        seconds = time.monotonic() - self._start
        new = progress.tokens - self._tokens_before
        speed = f", {new / seconds:,.0f} tokens/s" if new else ""
        if progress.bottleneck:
            speed += f", bottleneck: {progress.bottleneck}"
        self._bar.set_description_str(f"{progress.tokens:,} tokens{speed}", refresh=False)
        self._bar.update(progress.n_bytes - self._bar.n)
        self._bar.refresh()

    def __enter__(self) -> TokenBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()


@contextmanager
def part_bar(*, shown: bool) -> Iterator[ProgressFn]:
    """Show a progress bar for one step at a time, if stderr is a terminal."""
    from tqdm import tqdm

    bar = tqdm(disable=not (shown and sys.stderr.isatty()), leave=False)
    now = ""

    def progress(what: str, done: int, total: int) -> None:
        nonlocal now
        if what != now or done < bar.n:
            now = what
            bar.reset(total)
            bar.set_description(what)
        bar.update(done - bar.n)

    with bar:
        yield progress
