"""How a command tells on stderr what it does: lines, and bars where there is a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

import typer

from elmokit.progress import LogFn, Progress, ProgressFn, no_log

_KNOWN_SIZE = "{percentage:3.0f}%|{bar}| {desc} [{elapsed}, {remaining} left]"
_UNKNOWN_SIZE = "{desc} [{elapsed}]"


def stderr_logger(*, shown: bool = True) -> LogFn:
    """Return what prints lines for the user, or nothing."""
    return (lambda line: typer.echo(line, err=True)) if shown else no_log


class TokenBar:
    """Tokens per second, and the time left where the size is known.

    Args:
        shown: Whether to show anything; without a terminal nothing is shown in any case.

    Attributes:
        started: Whether the work has begun.
    """

    def __init__(self, *, shown: bool = True) -> None:
        from tqdm import tqdm

        # By default tqdm shares its lock with other processes and starts a helper for that, which
        # complains on the terminal when we are killed.
        tqdm.set_lock(threading.RLock())
        self.started = False
        self._tokens_before = 0
        self._start = 0.0
        self._bar = tqdm(disable=not (shown and sys.stderr.isatty()), bar_format=_UNKNOWN_SIZE)

    def __call__(self, progress: Progress) -> None:
        """Show how far the work has gone."""
        if not self.started:
            # What an interrupted run had done must not count as speed.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.close()


@contextmanager
def part_bar(*, shown: bool) -> Iterator[ProgressFn]:
    """Show on a terminal how far a part of the work has come."""
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
