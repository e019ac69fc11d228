"""Run jobs on all cores, with results in the order of the jobs.

Processes are used because tokenizing is Python code. If a worker dies (out of memory), an error is
raised instead of waiting forever.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import TypeVar

from elmokit.errors import ElmoError
from elmokit.parallel import process_pool

Job = TypeVar("Job")
Result = TypeVar("Result")


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
