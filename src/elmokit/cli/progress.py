"""Progress bars on stderr."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from elmokit.progress import Progress, ProgressFn

_FORMAT_WITH_TOTAL = "{percentage:3.0f}%|{bar}| {desc} [{elapsed}, {remaining} left]"
_FORMAT_WITHOUT_TOTAL = "{desc} [{elapsed}]"


@contextmanager
def token_bar(*, enabled: bool) -> Iterator[Callable[[Progress], None]]:
    """Show a progress bar with tokens per second, if stderr is a terminal.

    Also shows the remaining time if the size of the text is known.
    """
    first: Progress | None = None
    start = 0.0

    def update(progress: Progress) -> None:
        nonlocal first, start
        if first is None:
            # Exclude the tokens of an earlier, interrupted run from the speed.
            first, start = progress, time.monotonic()
            has_total = progress.total_bytes is not None
            bar.bar_format = _FORMAT_WITH_TOTAL if has_total else _FORMAT_WITHOUT_TOTAL
            bar.reset(progress.total_bytes)
            bar.initial = bar.n = bar.last_print_n = progress.n_bytes
        seconds = time.monotonic() - start
        new = progress.tokens - first.tokens
        speed = f", {new / seconds:,.0f} tokens/s" if new else ""
        if progress.bottleneck:
            speed += f", bottleneck: {progress.bottleneck}"
        bar.set_description_str(f"{progress.tokens:,} tokens{speed}", refresh=False)
        bar.update(progress.n_bytes - bar.n)
        bar.refresh()

    with _bar(enabled, bar_format=_FORMAT_WITHOUT_TOTAL) as bar:
        yield update


@contextmanager
def step_bar(*, enabled: bool) -> Iterator[ProgressFn]:
    """Show a progress bar for the current step, if stderr is a terminal."""
    current = ""

    def update(step: str, done: int, total: int) -> None:
        nonlocal current
        if step != current or done < bar.n:
            current = step
            bar.reset(total)
            bar.set_description(step)
        bar.update(done - bar.n)

    with _bar(enabled, leave=False) as bar:
        yield update


def _bar(enabled: bool, **options: Any) -> Any:
    from tqdm import tqdm

    # By default, tqdm creates a lock that is shared between processes. The helper process of the
    # lock prints an error when this process is killed.
    tqdm.set_lock(threading.RLock())
    return tqdm(disable=not (enabled and sys.stderr is not None and sys.stderr.isatty()), **options)
