"""Run jobs on all cores, with results in the order of the jobs.

Processes are used because tokenizing is Python code. They are spawned, which works on every system
and with threads. If a worker dies (out of memory), an error is raised instead of waiting forever;
if the main process is killed, the workers exit.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from types import TracebackType
from typing import Any, TypeVar

from elmokit.errors import ElmoError

Job = TypeVar("Job")
Result = TypeVar("Result")


def available_cores() -> int:
    """Count the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers:
    """Some processes, started when there is more than one job. With one, all is done right here.

    Args:
        n: How many.
    """

    def __init__(self, n: int) -> None:
        self._n = n
        self._pool: ProcessPoolExecutor | None = None

    def map(self, work: Callable[[Job], Result], jobs: Iterable[Job]) -> Iterator[Result]:
        """Yield `work(job)` for each job in order; jobs are taken only a little ahead of that.

        Args:
            work: A function at the top of a module.
            jobs: Jobs and results are sent between processes, so they should be small.
        """
        rest = iter(jobs)
        first = list(islice(rest, 2))
        rest = chain(first, rest)
        if self._n == 1 or len(first) < 2:
            yield from map(work, rest)
            return
        pending: deque[Future[Result]] = deque()
        try:
            for job in rest:
                pending.append(self._submit(work, job))
                if len(pending) > 2 * self._n:  # no process waits, and memory stays bounded
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BrokenProcessPool as error:
            raise ElmoError(
                f"One of {self._n} worker processes was killed, most often because memory ran out. "
                "Try fewer with --workers (in Python: workers=1)."
            ) from error

    def _submit(self, work: Callable[[Job], Result], job: Job) -> Future[Result]:
        if self._pool is None:
            context = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._n, context, _start_worker)
        with _interrupts_held():
            return self._pool.submit(work, job)

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """Set up a worker process: Ctrl-C is for the main process, whose end is the worker's too."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # a plain exit would wait for jobs that never come


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold back Ctrl-C, which a process started here inherits.

    Else one that is still importing when Ctrl-C comes would print a traceback of its own.
    """
    mask: Callable[..., Any] | None = getattr(signal, "pthread_sigmask", None)  # not on Windows
    if mask is None:
        yield
        return
    before = mask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        mask(signal.SIG_SETMASK, before)
