"""The queue by itself: what goes into a batch, and what happens to what cannot be computed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from elmokit.serve.batching import Batcher, Work
from elmokit.serve.metrics import Metrics
from elmokit.serve.refusals import Refusal


class Machine:
    """A work that notes its batches, and waits until it may begin."""

    def __init__(self, budget: int = 100, most: int = 128) -> None:
        self.batches: list[list[str]] = []
        self.may = threading.Event()
        self.entered = threading.Event()
        self.work = Work("machine", self.run, budget, most)

    def run(self, items: list[Any]) -> list[Any]:
        self.entered.set()
        assert self.may.wait(60)
        self.batches.append([name for name, _ in items])
        return [name.upper() for name, _ in items]


def items(name: str, *lengths: int) -> tuple[list[tuple[str, int]], list[int]]:
    return [(f"{name}{i}", n) for i, n in enumerate(lengths)], list(lengths)


def play(
    machine: Machine, jobs: list[tuple[list[tuple[str, int]], list[int]]], **options: Any
) -> list[Any]:
    """Put all jobs into the queue before any of them is computed."""

    async def main() -> list[Any]:
        batcher = Batcher(options.get("queue", 100), options.get("tokens", 10**6), Metrics())
        batcher.start(lambda: None)
        start = asyncio.ensure_future(batcher.submit(machine.work, *items("x", 1), timeout=10))
        while not machine.entered.is_set():
            await asyncio.sleep(0.005)
        asked = [
            asyncio.ensure_future(batcher.submit(machine.work, *job, timeout=10)) for job in jobs
        ]
        await asyncio.sleep(0.02)
        machine.may.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        await start
        batcher.close(10)
        return found

    return asyncio.run(main())


def test_small_requests_go_before_the_rest_of_a_large_one() -> None:
    machine = Machine(budget=40)
    found = play(machine, [items("large", *[20] * 4), items("a", 10), items("b", 10)])
    assert machine.batches[1:] == [["a0", "b0", "large0"], ["large1", "large2"], ["large3"]]
    assert found[0] == ["LARGE0", "LARGE1", "LARGE2", "LARGE3"]
    assert found[1:] == [["A0"], ["B0"]]


def test_a_large_request_does_not_fill_the_batches_of_others() -> None:
    """It has its share of a batch, and the rest when nobody else waits."""
    machine = Machine(budget=4096)
    play(machine, [items("large", *[20] * 200), *(items(f"s{n}", 20) for n in range(31))])
    first, second = (set(batch) for batch in machine.batches[1:3])
    assert {f"s{n}0" for n in range(31)} <= first
    assert len(first) == 31 + 6  # 4096 / 32 tokens are 6 sentences of 20
    assert len(second) == 128


def test_a_large_request_is_not_put_off_for_ever() -> None:
    """Small ones that come later wait for what the large one is owed."""
    machine = Machine(budget=30)
    order: list[str] = []

    async def main() -> None:
        batcher = Batcher(100, 10**6, Metrics())
        batcher.start(lambda: None)

        async def ask(name: str, *lengths: int) -> None:
            await batcher.submit(machine.work, *items(name, *lengths), timeout=10)
            order.append(name)

        async def stream() -> None:
            for n in range(20):
                await asyncio.gather(ask(f"s{n}", 10), ask(f"t{n}", 10), ask(f"u{n}", 10))

        machine.may.set()
        await asyncio.gather(ask("large", 60), stream())
        batcher.close(10)

    asyncio.run(main())
    assert order.index("large") < 30


def test_long_sentences_do_not_run_with_short_ones() -> None:
    machine = Machine(budget=10_000)
    play(machine, [items("a", 20), items("long", 600), items("b", 100), items("longer", 1000)])
    assert machine.batches[1:] == [["a0", "b0"], ["long0", "longer0"]]


def test_a_batch_has_so_many_items_at_most() -> None:
    machine = Machine(most=2)
    play(machine, [items("a", 1), items("b", 1), items("c", 1)])
    assert [len(batch) for batch in machine.batches] == [1, 2, 1]


def test_the_queue_counts_requests_and_tokens() -> None:
    found = play(Machine(), [items("a", 1), items("b", 1), items("c", 1)], queue=2)
    assert isinstance(found[2], Refusal)
    assert found[2].status == 429
    found = play(Machine(), [items("a", 50), items("b", 51), items("c", 50)], tokens=100)
    assert [isinstance(one, Refusal) for one in found] == [False, True, False]


def test_one_bad_item_fails_its_own_request() -> None:
    machine = Machine()
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


def test_what_nobody_waits_for_is_not_computed() -> None:
    machine = Machine()

    async def main() -> None:
        batcher = Batcher(100, 10**6, Metrics())
        batcher.start(lambda: None)
        first = asyncio.ensure_future(batcher.submit(machine.work, *items("x", 1), timeout=10))
        while not machine.entered.is_set():
            await asyncio.sleep(0.005)
        with pytest.raises(Refusal, match="The answer was not there after"):
            await batcher.submit(machine.work, *items("late", 1), timeout=0.05)
        gone = asyncio.ensure_future(batcher.submit(machine.work, *items("gone", 1), timeout=10))
        await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.sleep(0.01)
        machine.may.set()
        assert await first == ["X0"]
        batcher.close(10)
        with pytest.raises(Refusal, match="stopping"):
            await batcher.submit(machine.work, *items("a", 1), timeout=1)

    asyncio.run(main())
    assert machine.batches == [["x0"]]


def test_no_items_are_no_work() -> None:
    assert asyncio.run(Batcher(1, 1, Metrics()).submit(Machine().work, [], [], timeout=1)) == []
