"""Threads and processes that work ahead of their consumer.

Processes are spawned, which works on every system and with threads. They exit with the process that
started them, even if it is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import chain, islice
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from elmokit.errors import ElmoError

Item = TypeVar("Item")
Result = TypeVar("Result")


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def prefetched(items: Iterator[Item], n: int = 2) -> Generator[Item, None, None]:
    """Iterate in a separate thread, `n` items ahead of the consumer; items are not None."""
    with ThreadPoolExecutor(1) as reader:
        ahead = deque(reader.submit(next, items, None) for _ in range(n))
        try:
            while (item := ahead.popleft().result()) is not None:
                ahead.append(reader.submit(next, items, None))
                yield item
        finally:
            for future in ahead:
                future.cancel()


@contextmanager
def process_pool(
    n: int, start: Callable[..., None] | None = None, *arguments: Any
) -> Iterator[ProcessPoolExecutor]:
    """Start processes on demand; they exit with this process, or at the end of the block.

    Args:
        n: Maximum number of processes.
        start: Called at the start of each.
        arguments: Its arguments.
    """
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    # Otherwise the first process starts it, with SIGINT unblocked.
    resource_tracker.ensure_running()
    with _Pool(n, context, initializer=_begin, initargs=(theirs, start, arguments)) as pool:
        try:
            yield pool
        finally:
            ours.close()  # the processes exit


def parallel_map(
    work: Callable[[Item], Result], jobs: Iterable[Item], n_workers: int
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
    pending: deque[Future[Result]] = deque()
    try:
        with process_pool(n_workers) as pool:
            try:
                for job in rest:
                    pending.append(pool.submit(work, job))
                    if len(pending) > 2 * n_workers:  # no process waits, and memory stays bounded
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                # A process that exits while it sends a large result would block the pool forever.
                pool.shutdown(cancel_futures=True)
    except BrokenProcessPool as error:
        raise ElmoError(
            f"One of {n_workers} worker processes was killed, probably because memory ran out. Use "
            "fewer with --workers (in Python: workers=1)."
        ) from error


class _Pool(ProcessPoolExecutor):
    def submit(self, *args: Any, **kwargs: Any) -> Any:
        # This may start a process. Ctrl-C goes to this process, which then ends the others.
        with _interrupts_blocked(), _main_hidden():
            return super().submit(*args, **kwargs)


def _begin(parent: Connection, start: Callable[..., None] | None, arguments: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with, args=(parent,), daemon=True).start()
    if start is not None:
        start(*arguments)


def _exit_with(parent: Connection) -> None:
    """Exit when the process that started this one closes the pipe or dies."""
    parent.poll(None)
    os._exit(1)


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Keep new processes from importing the main module.

    They do not need it, and a script without `if __name__ == "__main__"` would run again in each.
    """
    main = vars(sys.modules["__main__"])
    before: dict[str, Any] = {n: main[n] for n in ("__file__", "__spec__") if n in main}
    main.pop("__file__", None)
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(before)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):  # not a POSIX system
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
