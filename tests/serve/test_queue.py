"""Queued requests: full queues, fairness, timeouts, and one failing request among others."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx

from elmokit.serve.settings import Limits, Settings
from tests.serve.conftest import (
    ALONE,
    Gate,
    answered,
    client,
    embed,
    error,
    metric,
    running,
    wait_for,
)


def test_full_queue_gives_429_with_retry_after() -> None:
    settings = replace(ALONE, limits=Limits(queue=3))
    with running(settings) as server, ThreadPoolExecutor(8) as threads:
        gate = Gate(server.service.resources.models["tiny"])

        def ask(n: int) -> httpx.Response:
            with client(server) as http:
                return embed(http, ["a"] * n)

        first = threads.submit(ask, 1)
        assert gate.entered.wait(60)  # being computed, and no longer in the queue
        waiting = [threads.submit(ask, n) for n in (2, 3, 4)]
        with client(server) as http:
            wait_for(lambda: metric(server, "elmo_queue_requests") == 3)
            answer = embed(http)
            found = error(answer, 429)
            assert int(answer.headers["retry-after"]) >= 1
            assert found["limit"] == {"name": "queue", "value": 3, "actual": 3}
            assert http.get("/readyz").status_code == 200
            gate.open()
            assert all(f.result().status_code == 200 for f in (first, *waiting))
            assert gate.batches == [1, 3]  # queued requests ran in one batch
            assert embed(http).status_code == 200


def test_searches_and_projections_wait_in_the_queue(served: Settings) -> None:
    """In earlier versions, they ran in other threads, without a limit on their number or time."""
    settings = replace(served, limits=Limits(queue=1))
    with running(settings) as server, ThreadPoolExecutor(2) as threads, client(server) as http:
        gate = Gate(server.service.resources.models["tiny"])
        first = threads.submit(embed, http, "a")
        assert gate.entered.wait(60)
        search = {"json": {"queries": [0]}}
        waiting = threads.submit(http.post, "/v1/neighbors", **search)
        wait_for(lambda: metric(server, "elmo_queue_requests") == 1)
        error(http.post("/v1/neighbors", **search), 429)
        gate.open()
        assert [one.result().status_code for one in (first, waiting)] == [200, 200]
        projection = http.post("/v1/project", json={"sentences": ["a [b]", "c [b]"]})
        assert projection.status_code == 200
        for work in ("neighbors", "project"):
            assert metric(server, "elmo_items_total", work=work) == 1


def test_large_request_does_not_delay_a_small_one() -> None:
    """Sentences are taken from all requests in turn, so the small one is in the first batch."""
    with running(ALONE) as server, ThreadPoolExecutor(4) as threads:
        gate = Gate(server.service.resources.models["tiny"])
        ended: list[str] = []

        def ask(name: str, *sentences: Any) -> None:
            with client(server) as http:
                assert embed(http, *sentences).status_code == 200
            ended.append(name)

        with client(server):
            start = threads.submit(ask, "start", "a")
            assert gate.entered.wait(60)
            large = threads.submit(ask, "large", *[["a"] * 16] * 250)
            wait_for(lambda: metric(server, "elmo_queue_tokens") == 4000)
            small = threads.submit(ask, "small", "b c")
            wait_for(lambda: metric(server, "elmo_queue_requests") == 2)
        gate.open()
        for one in (start, large, small):
            one.result()
        assert ended == ["start", "small", "large"]


def test_timeout_gives_504_and_the_request_is_not_computed_later() -> None:
    settings = replace(ALONE, limits=Limits(timeout=2))
    with running(settings) as server, ThreadPoolExecutor(4) as threads:
        gate = Gate(server.service.resources.models["tiny"])

        def ask(word: str) -> httpx.Response:
            with client(server) as http:
                return embed(http, word)

        first = threads.submit(ask, "a")
        assert gate.entered.wait(60)
        second = threads.submit(ask, "b")
        for one in (first, second):
            assert error(one.result(), 504)
        gate.open()
        with client(server) as http:
            assert embed(http).status_code == 200
        assert gate.batches == [1, 1]  # the first one and this one; the second one was abandoned


def test_failing_item_fails_only_its_own_request() -> None:
    with running(ALONE) as server, ThreadPoolExecutor(8) as threads:
        model = server.service.resources.models["tiny"]
        inner = model.compute
        gate = Gate(model)
        gated = model.compute

        def compute(sentences: Any, state: Any = "reset", **options: Any) -> Any:
            found = gated(sentences, state, **options)
            if any("boom" in words for words in sentences):
                raise RuntimeError("a bug")
            return found

        model.compute = compute  # type: ignore[method-assign]

        def ask(word: str) -> httpx.Response:
            with client(server) as http:
                return embed(http, word)

        start = threads.submit(ask, "start")
        assert gate.entered.wait(60)
        words = ["a", "boom", "b"]
        asked = [threads.submit(ask, word) for word in words]
        wait_for(lambda: metric(server, "elmo_queue_requests") == 3)
        gate.open()
        answers = [one.result() for one in asked]
        assert [answer.status_code for answer in answers] == [200, 500, 200]
        assert "a bug" not in answers[1].text
        wait_for(lambda: answered(server, 500) == 1)
        assert start.result().status_code == 200
        model.compute = inner  # type: ignore[method-assign]
