"""The batching queue on its own: composition of batches, fairness, and rejected requests."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from elmokit.serve import batching
from elmokit.serve.batching import Batcher, Job, Work
from elmokit.serve.errors import RequestRejected
from elmokit.serve.metrics import Metrics


class Worker:
    """A worker that records its batches and waits until it may start."""

    def __init__(self, budget: int = 100, max_items: int = 128) -> None:
        self.batches: list[list[str]] = []
        self.may = threading.Event()
        self.entered = threading.Event()
        self.work = Work("machine", self.run, budget, max_items)

    def run(self, items: list[Any]) -> list[Any]:
        self.entered.set()
        assert self.may.wait(60)
        self.batches.append([name for name, _ in items])
        return [name.upper() for name, _ in items]


def items(name: str, *lengths: int) -> tuple[list[tuple[str, int]], list[int]]:
    return [(f"{name}{i}", n) for i, n in enumerate(lengths)], list(lengths)


def new_batcher(queue: int = 100, timeout: float = 60.0) -> Batcher:
    batcher = Batcher(queue, timeout, Metrics())
    batcher.start(lambda: None)
    return batcher


def play(
    machine: Worker, jobs: list[tuple[list[tuple[str, int]], list[int]]], **options: Any
) -> list[Any]:
    """Put all jobs into the queue before any of them is computed."""

    async def main() -> list[Any]:
        batcher = new_batcher(**options)
        start = asyncio.ensure_future(batcher.submit(machine.work, *items("x", 1)))
        await asyncio.to_thread(machine.entered.wait, 60)
        asked = [asyncio.ensure_future(batcher.submit(machine.work, *job)) for job in jobs]
        await asyncio.sleep(0)  # each job runs until it waits
        machine.may.set()
        results = await asyncio.gather(*asked, return_exceptions=True)
        await start
        batcher.close(10)
        return results

    return asyncio.run(main())


def test_small_requests_run_before_the_rest_of_a_large_one() -> None:
    machine = Worker(budget=40)
    found = play(machine, [items("large", *[20] * 4), items("a", 10), items("b", 10)])
    assert machine.batches[1:] == [["a0", "b0", "large0"], ["large1", "large2"], ["large3"]]
    assert found[0] == ["LARGE0", "LARGE1", "LARGE2", "LARGE3"]
    assert found[1:] == [["A0"], ["B0"]]


def test_sentences_are_batched_by_length() -> None:
    machine = Worker(budget=10_000)
    machine.work.record(10**6, 1.0)
    play(machine, [items("a", 20), items("long", 600), items("b", 100), items("longer", 1000)])
    assert machine.batches[1:] == [["a0", "b0"], ["long0", "longer0"]]


def test_batch_size_is_limited() -> None:
    machine = Worker(max_items=2)
    play(machine, [items("a", 1), items("b", 1), items("c", 1)])
    assert [len(batch) for batch in machine.batches] == [1, 2, 1]


def test_queue_size_is_limited() -> None:
    found = play(Worker(), [items("a", 1), items("b", 1), items("c", 1)], queue=2)
    assert isinstance(found[2], RequestRejected)
    assert found[2].status == 429


def test_requests_that_cannot_finish_in_time_are_rejected_immediately() -> None:
    """At the measured speed (here one second per token), the queue may fill half of the timeout."""
    machine = Worker()
    machine.work.record(10**6, 1e6)
    found = play(machine, [items("a", 20), items("b", 20), items("c", 5)], timeout=60.0)
    assert [isinstance(one, RequestRejected) for one in found] == [False, True, False]
    assert found[1].status == 429
    assert "estimated response time is 4" in str(found[1])  # 20 waiting, 1 running and 20 new ones
    # 20 waiting, 1 running and 20 new ones are 11 more than may wait.
    assert 8 <= int(found[1].headers["Retry-After"]) <= 12


def test_small_requests_are_accepted_if_expensive_ones_fill_the_queue() -> None:
    batcher = Batcher(100, 60.0, Metrics())
    slow, fast = Work("slow", list, budget=0), Work("fast", list, budget=100)
    slow.record(1, 1e6)
    fast.record(10**6, 1e3)
    for seconds in (20, 5, 5):
        slow._seconds = seconds * slow._cost  # the estimate can become higher later
        batcher._enqueue(Job(slow, [0], [1]))
    slow._seconds = 20 * slow._cost
    small = [Job(fast, [0], [20]) for _ in range(3)]
    for job in small:
        batcher._enqueue(job)
    with pytest.raises(RequestRejected):
        batcher._enqueue(Job(slow, [0], [1]))
    batch = batcher._next_batch()
    assert batch is not None
    assert [job for job, _ in batch] == small


class Clock:
    """A clock that the test advances, in place of the module `time`."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = monotonic


def test_small_requests_are_fast_and_nothing_times_out_under_overload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Simulate 200 clients in a closed loop, a tenth of which send 2,000 tokens per request.

    If each request got the same share of the machine, as in earlier versions, large ones starve.
    """
    clock = Clock()
    monkeypatch.setattr(batching, "time", clock)
    draw = random.Random(0)
    work = Work("work", lambda given: given, budget=4096)
    batcher = Batcher(256, 60.0, Metrics())
    accepted: dict[str, list[float]] = {"small": [], "large": []}
    rejected = 0
    # Time and size of the next request of each client.
    wakes = [(0.01 * n, n < 20) for n in range(200)]
    waiting: dict[Job, bool] = {}
    while clock.now < 600:
        for wake in [wake for wake in wakes if wake[0] <= clock.now]:
            wakes.remove(wake)
            costs = [20] * 100 if wake[1] else [20]
            job = Job(work, costs, costs, arrival=clock.now)
            try:
                batcher._enqueue(job)
                waiting[job] = wake[1]
            except RequestRejected as error:
                rejected += 1
                wakes.append((clock.now + float(error.headers["Retry-After"]), wake[1]))
        batch = batcher._next_batch()
        assert batch is not None
        seconds = sum(job.costs[i] for job, i in batch) / 1600
        clock.now += seconds
        batcher._run(work, batch)
        work.record(sum(job.costs[i] for job, i in batch), seconds)
        for job in [job for job in waiting if job.future.done()]:
            is_large = waiting.pop(job)
            accepted["large" if is_large else "small"].append(clock.now - job.arrival)
            wakes.append((clock.now + 0.1 * draw.random(), is_large))
    assert max(accepted["large"]) < 60
    assert max(accepted["small"]) < 30
    assert sorted(accepted["small"])[len(accepted["small"]) // 2] < 10
    assert len(accepted["large"]) > 100


def test_invalid_item_fails_only_its_own_request() -> None:
    machine = Worker()
    inner: Callable[[list[Any]], list[Any]] = machine.run

    def run(given: list[Any]) -> list[Any]:
        if ("bad0", 3) in given:
            raise ValueError("bad")
        return inner(given)

    machine.work = Work("machine", run, 100)
    found = play(machine, [items("a", 1), items("bad", 3), items("c", 1)])
    assert found[0] == ["A0"]
    assert isinstance(found[1], ValueError)
    assert found[2] == ["C0"]


def test_cancelled_requests_are_not_computed() -> None:
    machine = Worker()

    async def main() -> None:
        batcher = new_batcher()
        first = asyncio.ensure_future(batcher.submit(machine.work, *items("x", 1)))
        await asyncio.to_thread(machine.entered.wait, 60)
        gone = asyncio.ensure_future(batcher.submit(machine.work, *items("gone", 1)))
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.wait({gone})
        machine.may.set()
        assert await first == ["X0"]
        batcher.close(10)

    asyncio.run(main())
    assert machine.batches == [["x0"]]


def test_empty_requests_are_not_queued() -> None:
    assert asyncio.run(new_batcher().submit(Worker().work, [], [])) == []
