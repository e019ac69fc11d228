"""Compute the sentences of concurrent requests in batches, on a single compute thread.

Each request becomes a `Job`: a list of items (usually sentences) and the `Work` to run on them. The
compute thread fills each batch with items of similar length from all waiting jobs with the same
work. Items with earlier deadlines come first. The deadline of an item is the arrival time of its
job plus a delay: `_DEADLINE_FACTOR` times the time needed to compute the job up to and including
the item, but at most 40% of the timeout. Therefore, a single sentence does not have to wait for a
thousand sentences of another request, and large requests do not starve.

A job is accepted if it and all pending work are expected to take at most half of the timeout, or if
it and the pending work with earlier deadlines are expected to take at most 10% of the timeout.
Otherwise, the job is rejected immediately. Together with the 40% for deadlines, these limits add up
to the timeout, so that accepted jobs finish in time.

The result of an item does not depend on its batch (up to rounding). If an item cannot be computed,
only the request that contains it fails.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from bisect import bisect
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace
from itertools import accumulate
from typing import Any

from elmokit.serve.errors import RequestRejected
from elmokit.serve.metrics import Metrics

_DEADLINE_FACTOR = 16.0
# Fractions of the timeout.
_MAX_DEADLINE = 0.4
_MAX_WAIT = 0.5
_MAX_SHORT_WAIT = 0.1
#: Maximum expected duration of a batch in seconds, so that a new job does not wait long for the
#: current batch. Not enforced for the first item of each job. Doubled if only one job is waiting.
_BATCH_SECONDS = 0.5
#: Maximum cost of an item in the shortest length class. The maximum of each longer class is four
#: times that of the previous one.
_SHORT_COST = 128
_MAX_RETRY_SECONDS = 60
_DECAY = 0.8  # weight of earlier batches in the average speed


@dataclass(eq=False)
class Work:
    """A computation. Items with the same `Work` object can be in the same batch.

    Attributes:
        name: The label in the metrics.
        run: Computes the results of a list of items.
        budget: Maximum cost of a batch. An item with a higher cost forms a batch of its own.
        max_items: Maximum number of items in a batch.
    """

    name: str
    run: Callable[[list[Any]], Sequence[Any]]
    budget: int
    max_items: int = 128
    # The initial estimate is 250 tokens per second.
    _seconds: float = 0.4
    _cost: float = 100.0

    @property
    def seconds_per_cost(self) -> float:
        """Seconds per unit of cost, averaged over recent batches."""
        return self._seconds / self._cost

    def record(self, cost: int, seconds: float) -> None:
        """Add the cost and duration of a batch to the average."""
        self._seconds = _DECAY * self._seconds + seconds
        self._cost = _DECAY * self._cost + cost


@dataclass(eq=False)
class Job:
    """The items of a request and their results so far."""

    work: Work
    items: Sequence[Any]
    costs: Sequence[int]
    future: Future[list[Any]] = field(default_factory=Future)
    arrival: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        self.results: list[Any] = [None] * len(self.items)
        self.unfinished = len(self.items)
        self.next = 0  # index of the next item to compute
        self.cumulative_costs = list(accumulate(self.costs, initial=0))

    @property
    def is_waiting(self) -> bool:
        """Whether there are items that have not been added to a batch yet."""
        return self.next < len(self.items)

    @property
    def waiting_cost(self) -> int:
        """The cost of the items that have not been added to a batch yet."""
        return self.cumulative_costs[-1] - self.cumulative_costs[self.next]

    def deadline(self, max_seconds: float) -> float:
        """Return the deadline of the next item, at most `max_seconds` after arrival."""
        seconds = self.work.seconds_per_cost * self.cumulative_costs[self.next + 1]
        return self.arrival + min(_DEADLINE_FACTOR * seconds, max_seconds)

    def seconds_before(self, deadline: float, max_seconds: float) -> float:
        """Return the expected seconds to compute the waiting items due before `deadline`."""
        rate, end = self.work.seconds_per_cost, len(self.items)
        if deadline < self.arrival + max_seconds:
            cost = (deadline - self.arrival) / (_DEADLINE_FACTOR * rate)
            end = max(self.next, bisect(self.cumulative_costs, cost) - 1)
        return rate * (self.cumulative_costs[end] - self.cumulative_costs[self.next])

    @property
    def length_class(self) -> int:
        """The length class of the next item. A long item would slow down a batch of short ones."""
        return (((self.costs[self.next] - 1) // _SHORT_COST).bit_length() + 1) // 2


class Batcher:
    """The job queue and the compute thread.

    Args:
        max_jobs: Maximum number of waiting jobs.
        timeout: Time limit for a job in seconds, including its time in the queue.
        metrics: The metrics to update.
    """

    def __init__(self, max_jobs: int, timeout: float, metrics: Metrics) -> None:
        self._max_jobs, self._timeout = max_jobs, timeout
        self._max_deadline = _MAX_DEADLINE * timeout
        self._metrics = metrics
        self._jobs: list[Job] = []
        self._condition = threading.Condition()
        self._closed = False
        self._busy_until = 0.0  # expected end of the current batch
        self._thread: threading.Thread | None = None
        metrics.queue_requests.set_function(lambda: len(self._jobs))
        metrics.queue_tokens.set_function(lambda: sum(job.waiting_cost for job in self._jobs))

    # ------------------------------------------------------------------------------ the event loop

    async def submit(self, work: Work, items: Sequence[Any], costs: Sequence[int]) -> list[Any]:
        """Compute items, in batches that can also contain items of other jobs.

        Args:
            work: The computation.
            items: The items to compute.
            costs: The cost of each item, in tokens.

        Raises:
            RequestRejected: 429 if the queue is full or the job would wait too long, 504 if the job
                timed out.
        """
        if not items:
            return []
        job = Job(work, items, costs)
        self._enqueue(job)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(job.future), self._timeout)
        except TimeoutError:
            raise RequestRejected(
                f"The response was not computed within {self._timeout:g} seconds (--timeout). Send "
                "less text per request, or retry when the service is less busy.",
                504,
            ) from None
        finally:
            self._remove(job)

    def _enqueue(self, job: Job) -> None:
        with self._condition:
            job_seconds = job.work.seconds_per_cost * job.waiting_cost
            deadline = job.arrival + min(_DEADLINE_FACTOR * job_seconds, self._max_deadline)
            # Expected seconds until all pending work is done, and until the job can start.
            seconds_to_finish = seconds_to_start = max(0.0, self._busy_until - time.monotonic())
            for other in self._jobs:
                seconds_to_finish += other.work.seconds_per_cost * other.waiting_cost
                seconds_to_start += other.seconds_before(deadline, self._max_deadline)
            excess = job_seconds + min(
                seconds_to_finish - _MAX_WAIT * self._timeout,
                seconds_to_start - _MAX_SHORT_WAIT * self._timeout,
            )
            # A job is always accepted if the queue is empty, because the estimate may be wrong.
            if len(self._jobs) >= self._max_jobs or (self._jobs and excess > 0):
                raise RequestRejected(
                    f"Too many requests: the queue contains {len(self._jobs):,} of at most "
                    f"{self._max_jobs:,} requests (--queue), and the estimated response time is "
                    f"{seconds_to_finish + job_seconds:.1f} seconds. The limit is "
                    f"{_MAX_WAIT * self._timeout:g} seconds (half of --timeout).",
                    429,
                    retry_after=min(max(math.ceil(excess), 1), _MAX_RETRY_SECONDS),
                    limit={"name": "queue", "value": self._max_jobs, "actual": len(self._jobs)},
                )
            self._jobs.append(job)
            self._condition.notify()

    def _remove(self, job: Job) -> None:
        with self._condition:
            if job in self._jobs:
                self._jobs.remove(job)

    # -------------------------------------------------------------------------- the compute thread

    def start(self, prepare: Callable[[], None]) -> None:
        """Start the thread, which first calls `prepare`. `prepare` must not raise exceptions."""

        def main() -> None:
            prepare()
            while (batch := self._next_batch()) is not None:
                self._compute(batch)

        self._thread = threading.Thread(target=main, name="elmo-compute", daemon=True)
        self._thread.start()

    def close(self, timeout: float | None = None) -> None:
        """Finish all waiting jobs, and stop the thread."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)

    def _next_batch(self) -> list[tuple[Job, int]] | None:
        """Wait for a job. Return the next batch, or None if the queue is closed and empty."""
        with self._condition:
            while not self._jobs:
                if self._closed:
                    return None
                self._condition.wait()
            max_seconds = self._max_deadline
            first = min(self._jobs, key=lambda job: job.deadline(max_seconds))
            work, length_class = first.work, first.length_class
            similar = [
                (job.deadline(max_seconds), i, job)
                for i, job in enumerate(self._jobs)
                if job.work is work and job.length_class == length_class
            ]
            heapify(similar)
            seconds = _BATCH_SECONDS * (2 if len(self._jobs) == 1 else 1)
            time_budget = seconds / work.seconds_per_cost
            batch: list[tuple[Job, int]] = []
            members: set[Job] = set()
            cost = 0
            while similar and len(batch) < work.max_items:
                _, i, job = similar[0]
                budget = min(time_budget, work.budget) if job in members else work.budget
                if batch and cost + job.costs[job.next] > budget:
                    break
                members.add(job)
                cost += job.costs[job.next]
                batch.append((job, job.next))
                job.next += 1
                if job.is_waiting and job.length_class == length_class:
                    heapreplace(similar, (job.deadline(max_seconds), i, job))
                else:
                    heappop(similar)
            self._jobs = [job for job in self._jobs if job.is_waiting]
            self._busy_until = time.monotonic() + work.seconds_per_cost * cost
            return batch

    def _compute(self, batch: list[tuple[Job, int]]) -> None:
        start = time.perf_counter()
        work = batch[0][0].work
        try:
            self._run(work, batch)
        except Exception:  # run each job separately, so that only the job with the error fails
            for job in dict.fromkeys(job for job, _ in batch):
                try:
                    self._run(work, [(other, i) for other, i in batch if other is job])
                except Exception as error:
                    self._remove(job)
                    with suppress(InvalidStateError):  # the request was canceled
                        job.future.set_exception(error)
        seconds = time.perf_counter() - start
        cost = sum(job.costs[i] for job, i in batch)
        work.record(cost, seconds)
        self._metrics.items.labels(work.name).inc(len(batch))
        self._metrics.batch_tokens.labels(work.name).observe(cost)
        self._metrics.batch_seconds.labels(work.name).observe(seconds)

    def _run(self, work: Work, batch: list[tuple[Job, int]]) -> None:
        batch = [(job, i) for job, i in batch if not job.future.done()]
        if not batch:
            return
        results = work.run([job.items[i] for job, i in batch])
        for (job, i), result in zip(batch, results, strict=True):
            job.results[i] = result
            job.unfinished -= 1
            if not job.unfinished:
                with suppress(InvalidStateError):
                    job.future.set_result(job.results)
