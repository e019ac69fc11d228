"""Run work in background threads and processes.

Processes are spawned rather than forked, because forking is unsafe with threads and not available
on all systems. They exit when their parent process exits, even if it is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
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
    """Return the number of CPU cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def prefetch(items: Iterator[Item], n: int = 2) -> Generator[Item, None, None]:
    """Iterate in a separate thread, up to `n` items ahead. Items must not be None."""
    with ThreadPoolExecutor(1) as executor:
        futures = deque(executor.submit(next, items, None) for _ in range(n))
        try:
            while (item := futures.popleft().result()) is not None:
                futures.append(executor.submit(next, items, None))
                yield item
        finally:
            for future in futures:
                future.cancel()


def run_futures(
    submit: Callable[[Item], Future[Result]],
    items: Iterable[Item],
    limit: int,
    *,
    in_order: bool = False,
) -> Generator[Result, None, None]:
    """Submit items, at most `limit` at a time, and yield each result when it is available.

    After an error, no more items are submitted. The error is raised once the results of all
    submitted items have been yielded. Items must not be None.

    Args:
        submit: Function that starts processing an item.
        items: The items.
        limit: Maximum number of unfinished items.
        in_order: Yield the results in the order of the items.
    """
    iterator = iter(items)
    running: list[Future[Result]] = []
    failure: Exception | None = None
    while True:
        if failure is None and len(running) < limit:
            try:
                item = next(iterator, None)
                if item is None:
                    limit = 0
                else:
                    running.append(submit(item))
            except Exception as error:
                failure = error
        elif running:
            wait_for(running[:1] if in_order else running, return_when=FIRST_COMPLETED)
        else:
            break
        while finished := [f for f in (running[:1] if in_order else running) if f.done()]:
            running.remove(finished[0])
            try:
                result = finished[0].result()
            except Exception as error:
                failure = failure or error
            else:
                yield result
    if failure is not None:
        raise failure


@contextmanager
def process_pool(
    n: int, setup: Callable[..., None] | None = None, *arguments: Any
) -> Iterator[ProcessPoolExecutor]:
    """Yield a pool whose worker processes are started on demand.

    The workers exit at the end of the `with` block, or when this process exits.

    Args:
        n: Maximum number of processes.
        setup: Called in each worker when it starts.
        arguments: The arguments of `setup`.
    """
    context = multiprocessing.get_context("spawn")
    worker_end, parent_end = context.Pipe(duplex=False)
    # If `_Pool.submit` started the resource tracker, SIGINT would be unblocked too early.
    resource_tracker.ensure_running()
    with _Pool(
        n, context, initializer=_initialize_worker, initargs=(worker_end, setup, arguments)
    ) as pool:
        try:
            yield pool
        finally:
            parent_end.close()  # makes the workers exit


def parallel_map(
    function: Callable[[Item], Result], items: Iterable[Item], n_workers: int
) -> Iterator[Result]:
    """Yield `function(item)` for each item, in order. Only a few items are read in advance.

    Args:
        function: A function at the top level of a module.
        items: The items. Items and results are sent between processes, so they should be small.
        n_workers: Number of processes. With one worker or one item, this process does the work.
    """
    iterator = iter(items)
    first = list(islice(iterator, 2))
    iterator = chain(first, iterator)
    if n_workers == 1 or len(first) < 2:
        yield from map(function, iterator)
        return
    try:
        with process_pool(n_workers) as pool:
            try:
                limit = 2 * n_workers + 1  # keeps all workers busy and memory usage low
                yield from run_futures(
                    lambda item: pool.submit(function, item), iterator, limit, in_order=True
                )
            finally:
                # A worker that exits while it sends a large result would block the pool forever.
                pool.shutdown(cancel_futures=True)
    except BrokenProcessPool as error:
        raise ElmoError(
            f"One of {n_workers} worker processes was killed, probably because the system ran out "
            "of memory. Use fewer processes, for example --workers 1 (in Python: workers=1)."
        ) from error


class _Pool(ProcessPoolExecutor):
    def submit(self, *args: Any, **kwargs: Any) -> Any:
        # This may start a worker, which inherits the signal mask. Only the parent handles SIGINT.
        with _block_interrupts(), _hide_main():
            return super().submit(*args, **kwargs)


def _initialize_worker(
    parent: Connection, setup: Callable[..., None] | None, arguments: Any
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    if setup is not None:
        setup(*arguments)


def _exit_with_parent(parent: Connection) -> None:
    """Exit when the parent process closes the pipe or dies."""
    parent.poll(None)
    os._exit(1)


@contextmanager
def _hide_main() -> Iterator[None]:
    """Prevent new processes from importing the main module.

    They do not need it, and a script without `if __name__ == "__main__"` would run again in each
    process.
    """
    main = vars(sys.modules["__main__"])
    original: dict[str, Any] = {n: main[n] for n in ("__file__", "__spec__") if n in main}
    main.pop("__file__", None)
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(original)


@contextmanager
def _block_interrupts() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):  # not a POSIX system
        yield
        return
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
