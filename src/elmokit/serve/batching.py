"""The sentences of many clients, run together on one thread.

A request becomes a `Job`: items (sentences, mostly) and the `Work` to do on them. The one thread
that computes fills a batch with items of the same work and of like length from all jobs that wait.
Which come first is decided by fair queueing (Golestani 1994): each item has a tag, the sum of the
costs of its job up to it, counted from where the queue was when the job came; the least goes first.
So jobs share the machine by tokens: a request of a thousand sentences does not make one of a single
sentence wait, and is not put off for ever by many of those.

What is found for an item does not depend on its batch (rule 1 of the project, 2e-6).

An item that cannot be computed fails its own request, never its batch mates.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any

from elmokit.errors import ElmoError
from elmokit.serve.metrics import Metrics
from elmokit.serve.refusals import Refusal

_SHORT = 128  # items up to this cost are alike; then those up to 4, 16, ... times as much
_LONGEST_RETRY = 60  # seconds
_SMOOTH = 0.2  # weight of the last batch in the mean speed


@dataclass(frozen=True, eq=False)
class Work:
    """What can be done to many items at once. Items of the same object run together.

    Attributes:
        name: For the metrics.
        run: Items -> what was found for each, in their order.
        budget: Cost of a batch at most; an item that costs more runs alone.
        most: Items of a batch at most.
    """

    name: str
    run: Callable[[list[Any]], Sequence[Any]]
    budget: int
    most: int = 128


@dataclass(eq=False)
class Job:
    """One request's items and what is known of them so far."""

    work: Work
    items: Sequence[Any]
    costs: Sequence[int]
    keep: Callable[[Any], Any]
    deliver: Callable[[list[Any] | BaseException], None]
    found: list[Any] = field(default_factory=list)
    tag: int = 0  # of the next item
    taken: int = 0
    missing: int = 0
    given_up: bool = False

    def __post_init__(self) -> None:
        self.found = [None] * len(self.items)
        self.missing = len(self.items)

    @property
    def cost(self) -> int:
        """What is left to be taken."""
        return sum(self.costs[self.taken :])

    @property
    def length(self) -> int:
        """Of the next item, as a class: a long one would keep a batch of short ones waiting."""
        return (((self.costs[self.taken] - 1) // _SHORT).bit_length() + 1) // 2


class Batcher:
    """The queue, and the thread that works on it.

    Args:
        queue: Jobs that may wait.
        queue_tokens: The sum of their costs; a single job may cost more.
        metrics: Where to count.
    """

    def __init__(self, queue: int, queue_tokens: int, metrics: Metrics) -> None:
        self._most_jobs, self._most_cost = queue, queue_tokens
        self._metrics = metrics
        self._jobs: list[Job] = []
        self._now = 0  # the tag that was taken last
        self._changed = threading.Condition()
        self._closed = False
        self._waiting = 0  # cost of what was not taken yet
        self._running = 0  # cost of the batch that is computed now
        self._speed = 0.0  # cost per second, smoothed
        self._thread: threading.Thread | None = None
        metrics.gauge("elmo_queue_requests", "Requests that wait.", lambda: len(self._jobs))
        metrics.gauge("elmo_queue_tokens", "Tokens that wait.", lambda: self._waiting)

    # ----------------------------------------------------------------------------- the asking side

    async def submit(
        self,
        work: Work,
        items: Sequence[Any],
        costs: Sequence[int],
        *,
        timeout: float,
        keep: Callable[[Any], Any] = lambda found: found,
    ) -> list[Any]:
        """Have items computed, and wait for them.

        Args:
            work: What to do.
            items: To what.
            costs: How much each is, in tokens.
            timeout: Seconds to wait.
            keep: Makes of what was found what the request needs of it, on the computing thread.

        Raises:
            Refusal: 429, the queue is full; 503, the service stops; 504, it took too long.
        """
        if not items:
            return []
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Any]] = loop.create_future()

        def settle(result: list[Any] | BaseException) -> None:
            if future.done():
                return
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

        def deliver(result: list[Any] | BaseException) -> None:
            try:
                loop.call_soon_threadsafe(settle, result)
            except RuntimeError:  # the loop is closed, nobody waits
                return

        job = Job(work, items, costs, keep, deliver)
        self._put(job)
        try:
            return await asyncio.wait_for(future, timeout)
        except TimeoutError:
            raise Refusal(
                504,
                f"The answer was not there after {timeout:g} seconds (--timeout). Send less text "
                "at once, or come again when fewer ask.",
            ) from None
        finally:
            if not future.done() or future.cancelled():
                self._give_up(job)

    def _put(self, job: Job) -> None:
        with self._changed:
            if self._closed:
                raise stopping()
            cost = job.cost
            full = len(self._jobs) >= self._most_jobs
            if full or (self._jobs and self._waiting + cost > self._most_cost):
                self._metrics.count("elmo_refused_total", reason="queue")
                raise self._full()
            job.tag = self._now + job.costs[0]
            self._jobs.append(job)
            self._waiting += cost
            self._changed.notify()

    def _full(self) -> Refusal:
        waiting = self._waiting
        seconds = 1 if not self._speed else round((waiting + self._running) / self._speed)
        seconds = min(max(seconds, 1), _LONGEST_RETRY)
        return Refusal(
            429,
            f"{len(self._jobs):,} requests with {waiting:,} tokens wait already; at most "
            f"{self._most_jobs:,} requests and {self._most_cost:,} tokens may (--queue). Come "
            f"again in {seconds} seconds.",
            limit={"name": "queue", "value": self._most_jobs, "found": len(self._jobs)},
            headers={"Retry-After": str(seconds)},
        )

    def _give_up(self, job: Job) -> None:
        with self._changed:
            job.given_up = True
            if job in self._jobs:
                self._jobs.remove(job)
                self._waiting -= job.cost

    # -------------------------------------------------------------------------- the computing side

    def start(self, prepare: Callable[[], None]) -> None:
        """Start the thread; it first does `prepare`, which must not raise."""

        def main() -> None:
            prepare()
            while (taken := self._take()) is not None:
                self._compute(*taken)

        self._thread = threading.Thread(target=main, name="elmo-compute", daemon=True)
        self._thread.start()

    def close(self, timeout: float | None = None) -> None:
        """Take no more jobs, finish those that wait, and end the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(timeout)

    def _take(self) -> tuple[Work, list[tuple[Job, int]]] | None:
        """Wait for work and return a batch, the items with the least tags; None is the end."""
        with self._changed:
            while not self._jobs:
                if self._closed:
                    return None
                self._changed.wait()
            first = min(self._jobs, key=lambda job: job.tag)
            work, length = first.work, first.length
            # Of equal tags the older job goes first.
            able = [(job.tag, i, job) for i, job in enumerate(self._jobs) if job.work is work]
            heapify(able)
            # What is left of a batch is not all for one who asks for much: the others would wait.
            share = max(_SHORT, work.budget // len(able))
            had: Counter[int] = Counter()
            batch: list[tuple[Job, int]] = []
            size = 0
            while able and len(batch) < work.most:
                _, i, job = heappop(able)
                if job.length != length:
                    continue
                cost = job.costs[job.taken]
                if had[i] and had[i] + cost > share:
                    continue
                if batch and size + cost > work.budget:
                    break
                batch.append((job, job.taken))
                had[i] += cost
                size += cost
                self._now = max(self._now, job.tag)
                job.taken += 1
                if job.taken < len(job.items):
                    job.tag += job.costs[job.taken]
                    heappush(able, (job.tag, i, job))
            self._jobs = [job for job in self._jobs if job.taken < len(job.items)]
            self._waiting -= size
            self._running = size
            return work, batch

    def _compute(self, work: Work, batch: list[tuple[Job, int]]) -> None:
        begin = time.perf_counter()
        try:
            self._run(work, batch)
        except BaseException as error:
            members = list(dict.fromkeys(job for job, _ in batch))
            if len(members) == 1 or not isinstance(error, Exception):
                for job in members:
                    self._fail(job, error)
            else:  # one of them is to blame: each for itself
                for job in members:
                    try:
                        self._run(work, [(j, i) for j, i in batch if j is job])
                    except Exception as own:
                        self._fail(job, own)
        seconds = time.perf_counter() - begin
        cost, self._running = self._running, 0
        speed = cost / max(seconds, 1e-6)
        self._speed = speed if not self._speed else (1 - _SMOOTH) * self._speed + _SMOOTH * speed
        self._metrics.batch(work.name, len(batch), cost, seconds)

    def _run(self, work: Work, batch: list[tuple[Job, int]]) -> None:
        batch = [(job, i) for job, i in batch if not job.given_up]
        if not batch:
            return
        found = work.run([job.items[i] for job, i in batch])
        for (job, i), result in zip(batch, found, strict=True):
            job.found[i] = job.keep(result)
            job.missing -= 1
            if not job.missing:
                job.deliver(job.found)

    def _fail(self, job: Job, error: BaseException) -> None:
        self._give_up(job)
        if not isinstance(error, ElmoError):
            self._metrics.failed(error)
        job.deliver(error)


def stopping() -> Refusal:
    """Return the refusal of a service that is going down."""
    return Refusal(
        503,
        "The service is stopping and takes no more requests. Come again when it is back.",
        headers={"Retry-After": "5", "Connection": "close"},
    )
