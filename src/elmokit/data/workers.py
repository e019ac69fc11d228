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
from typing import Any, TypeVar

from elmokit.errors import ElmoError

Job = TypeVar("Job")
Result = TypeVar("Result")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parallel_map(
    work: Callable[[Job], Result], jobs: Iterable[Job], n_workers: int
) -> Iterator[Result]:
    """Yield `work(job)` for each job in order; only a few jobs are taken in advance.

    Args:
        work: A function at the top level of a module.
        jobs: Jobs and results are sent between processes, so they should be small.
        n_workers: Number of processes. For 1, or a single job, this process does the work.
    """
    rest = iter(jobs)
    first = list(islice(rest, 2))
    rest = chain(first, rest)
    if n_workers == 1 or len(first) < 2:
        yield from map(work, rest)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(n_workers, context, _start_worker)
    pending: deque[Future[Result]] = deque()
    try:
        for job in rest:
            with _interrupts_blocked():
                pending.append(pool.submit(work, job))
            if len(pending) > 2 * n_workers:  # no process waits, and memory stays bounded
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    except BrokenProcessPool as error:
        raise ElmoError(
            f"One of {n_workers} worker processes was killed, probably because memory ran out. Use "
            "fewer with --workers (in Python: workers=1)."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    """Ignore Ctrl-C, which the main process handles, and exit with the main process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)  # a normal exit would wait for jobs that never come


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C, also in processes that are started inside.

    Otherwise a process that is still importing would print its own traceback.
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
