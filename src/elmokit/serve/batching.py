"""The sentences of many clients, run together on one thread.

A request becomes a `Job`: items (sentences, mostly) and the `Work` to do on them. The one thread
that computes fills a batch with items of the same work and of similar length from all jobs that
wait, in the order in which they are due: an item is due `_STRETCH` times as long after the arrival
of its job as the job takes to compute up to and including that item, but after half of the timeout
at most. So a single sentence does not wait for a thousand of another request, and those are not
postponed forever by single ones. A job is accepted if the work that waits, by the measured speed,
takes the other half at most; it is answered before its timeout, or rejected at once.

The result of an item does not depend on its batch (2e-6), and an item that cannot be computed fails
its own request, never the others of its batch.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from typing import Any

from elmokit.serve.errors import RequestRejected, shutting_down
from elmokit.serve.metrics import Metrics

_STRETCH = 16.0
#: Seconds up to which a batch is filled with further items of the same jobs, if others wait; twice
#: as long if none do. A job that arrives meanwhile waits for the batch.
_BATCH_SECONDS = 0.5
_SHORT = 128  # items up to this cost are similar; then those up to 4, 16, ... times as much
_LONGEST_RETRY = 60  # seconds
_DECAY = 0.8  # weight of earlier batches in the measured speed


@dataclass(eq=False)
class Work:
    """What can be done to many items at once. Items of the same object run together.

    Attributes:
        name: For the metrics.
        run: Items -> the result of each, in their order.
        budget: Cost of a batch at most; an item that costs more runs alone.
        most: Items of a batch at most.
    """

    name: str
    run: Callable[[list[Any]], Sequence[Any]]
    budget: int
    most: int = 128
    # Before the first batch: 250 tokens a second.
    _seconds: float = 0.4
    _cost: float = 100.0

    @property
    def rate(self) -> float:
        """Seconds per unit of cost, by the latest batches."""
        return self._seconds / self._cost

    def measured(self, cost: int, seconds: float) -> None:
        """Take the time of a batch into account."""
        self._seconds = _DECAY * self._seconds + seconds
        self._cost = _DECAY * self._cost + cost


@dataclass(eq=False)
class Job:
    """One request's items and their results so far."""

    work: Work
    items: Sequence[Any]
    costs: Sequence[int]
    keep: Callable[[Any], Any]
    future: Future[list[Any]] = field(default_factory=Future)
    arrival: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.results: list[Any] = [None] * len(self.items)
        self.missing = len(self.items)
        self.taken = 0
        self.taken_cost = 0
        self.waiting_cost = sum(self.costs)

    @property
    def waits(self) -> bool:
        """Whether items are left to be computed."""
        return self.taken < len(self.items)

    def due(self, longest: float) -> float:
        """Return when the next item is due, `longest` seconds after the arrival at most."""
        cost = self.taken_cost + self.costs[self.taken]
        return self.arrival + min(_STRETCH * self.work.rate * cost, longest)

    @property
    def length(self) -> int:
        """Of the next item, as a class: a long one would delay a batch of short ones."""
        return (((self.costs[self.taken] - 1) // _SHORT).bit_length() + 1) // 2

    def take(self) -> int:
        """Take the next item, and return its number."""
        cost = self.costs[self.taken]
        self.taken_cost += cost
        self.waiting_cost -= cost
        self.taken += 1
        return self.taken - 1


class Batcher:
    """The queue, and the thread that works on it.

    Args:
        queue: Jobs that may wait.
        timeout: Seconds that a job may wait and take.
        metrics: Where to count.
    """

    def __init__(self, queue: int, timeout: float, metrics: Metrics) -> None:
        self._most_jobs, self._timeout = queue, timeout
        self._metrics = metrics
        self._jobs: list[Job] = []
        self._changed = threading.Condition()
        self._closed = False
        self._running_until = 0.0  # when the batch that is computed now should be finished
        self._thread: threading.Thread | None = None
        metrics.queue_requests.set_function(lambda: len(self._jobs))
        metrics.queue_tokens.set_function(lambda: sum(job.waiting_cost for job in self._jobs))

    # --------------------------------------------------------------------------- the asking side

    async def submit(
        self,
        work: Work,
        items: Sequence[Any],
        costs: Sequence[int],
        keep: Callable[[Any], Any] = lambda result: result,
    ) -> list[Any]:
        """Compute items, together with those of other jobs.

        Args:
            work: What to do.
            items: To what.
            costs: How much each is, in tokens.
            keep: Reduces a result to what the request needs, on the computing thread.

        Raises:
            RequestRejected: 429, it would wait too long; 503, the service is shutting down; 504,
                it took too long.
        """
        if not items:
            return []
        job = Job(work, items, costs, keep)
        self._put(job)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(job.future), self._timeout)
        except TimeoutError:
            raise RequestRejected(
                504,
                f"The response was not computed within {self._timeout:g} seconds (--timeout). Send "
                "less text per request, or retry when the service is less busy.",
            ) from None
        finally:
            self._remove(job)

    def _put(self, job: Job) -> None:
        with self._changed:
            if self._closed:
                raise shutting_down()
            waiting = sum(other.work.rate * other.waiting_cost for other in self._jobs)
            seconds = max(0.0, self._running_until - time.monotonic()) + waiting
            own = job.work.rate * job.waiting_cost
            too_long = seconds + own - self._timeout / 2
            # A job that finds an empty queue may try, whatever the estimate says.
            if len(self._jobs) >= self._most_jobs or (self._jobs and too_long > 0):
                self._metrics.rejected.labels("queue").inc()
                raise RequestRejected.retry(
                    429,
                    f"Too many requests: {len(self._jobs):,} are waiting, for about {seconds:.1f} "
                    f"seconds. The limits are {self._most_jobs:,} requests (--queue) and "
                    f"{self._timeout / 2:g} seconds (half of --timeout).",
                    min(max(math.ceil(too_long), 1), _LONGEST_RETRY),
                    limit={"name": "queue", "value": self._most_jobs, "found": len(self._jobs)},
                )
            self._jobs.append(job)
            self._changed.notify()

    def _remove(self, job: Job) -> None:
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)

    # ------------------------------------------------------------------------ the computing side

    def start(self, prepare: Callable[[], None]) -> None:
        """Start the thread; it first calls `prepare`, which must not raise."""

        def main() -> None:
            prepare()
            while (batch := self._take()) is not None:
                self._compute(batch)

        self._thread = threading.Thread(target=main, name="elmo-compute", daemon=True)
        self._thread.start()

    def close(self, timeout: float | None = None) -> None:
        """Take no more jobs, finish those that wait, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)

    def _take(self) -> list[tuple[Job, int]] | None:
        """Wait for work and return a batch, the items that are due first; None is the end."""
        with self._changed:
            while not self._jobs:
                if self._closed:
                    return None
                self._changed.wait()
            longest = self._timeout / 2
            first = min(self._jobs, key=lambda job: job.due(longest))
            work, length = first.work, first.length
            similar = [
                (job.due(longest), i, job)
                for i, job in enumerate(self._jobs)
                if job.work is work and job.length == length
            ]
            heapify(similar)
            further = _BATCH_SECONDS * (2 if len(self._jobs) == 1 else 1) / work.rate
            further = min(further, work.budget)
            batch: list[tuple[Job, int]] = []
            members: set[Job] = set()
            size = 0
            while similar and len(batch) < work.most:
                _, i, job = similar[0]
                budget = further if job in members else work.budget
                if batch and size + job.costs[job.taken] > budget:
                    break
                members.add(job)
                size += job.costs[job.taken]
                batch.append((job, job.take()))
                if job.waits and job.length == length:
                    heapreplace(similar, (job.due(longest), i, job))
                else:
                    heappop(similar)
            self._jobs = [job for job in self._jobs if job.waits]
            self._running_until = time.monotonic() + work.rate * size
            return batch

    def _compute(self, batch: list[tuple[Job, int]]) -> None:
        begin = time.perf_counter()
        work = batch[0][0].work
        try:
            self._run(work, batch)
        except Exception:  # one of the jobs is to blame: each for itself
            for job in dict.fromkeys(job for job, _ in batch):
                try:
                    self._run(work, [(other, i) for other, i in batch if other is job])
                except Exception as error:
                    self._fail(job, error)
        seconds = time.perf_counter() - begin
        cost = sum(job.costs[i] for job, i in batch)
        work.measured(cost, seconds)
        self._metrics.observe_batch(work.name, len(batch), cost, seconds)

    def _run(self, work: Work, batch: list[tuple[Job, int]]) -> None:
        batch = [(job, i) for job, i in batch if not job.future.done()]
        if not batch:
            return
        results = work.run([job.items[i] for job, i in batch])
        # All of them before any is stored: if one fails, the jobs are run again one by one.
        kept = [job.keep(result) for (job, _), result in zip(batch, results, strict=True)]
        for (job, i), result in zip(batch, kept, strict=True):
            job.results[i] = result
            job.missing -= 1
            if not job.missing:
                with suppress(InvalidStateError):  # cancelled a moment ago
                    job.future.set_result(job.results)

    def _fail(self, job: Job, error: Exception) -> None:
        self._remove(job)
        with suppress(InvalidStateError):
            job.future.set_exception(error)
