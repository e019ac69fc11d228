"""Bodies within the size limit that would be disproportionately expensive to process."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

import httpx
import orjson
import pytest

from elmokit.serve.settings import Limits, Settings
from tests.serve.conftest import ALONE, client, embed, error, metric, running

WRONG = {
    "sentences": ("/v1/embed", {"sentences": [1] * 900_000}),
    "tokens": ("/v1/embed", {"sentences": [[1] * 900_000]}),
    "tokens of many": ("/v1/score", {"sentences": [[1]] * 450_000}),
    "layer": ("/v1/embed", {"sentences": ["a"], "layer": ["x"] * 450_000}),
    "weights": ("/v1/similarity", {"sentences": ["a"], "layer": "mix", "mix": [None] * 350_000}),
    "senses": ("/v1/project", {"sentences": ["[a]"], "senses": [1] * 900_000}),
    "queries": ("/v1/neighbors", {"queries": [{"x": 1}] * 220_000}),
    "positions": ("/v1/substitutes", {"sentence": "a", "positions": [-1] * 600_000}),
    "examples": ("/v1/tasks/ner", {"examples": [1] * 900_000}),
    "input": ("/v1/embeddings", {"model": "tiny", "input": [1] * 900_000}),
    "fields": ("/v1/embed", {f"f{i}": 1 for i in range(150_000)}),
    "fields of a query": ("/v1/neighbors", {"queries": [{f"f{i}": 1 for i in range(150_000)}]}),
}


@pytest.fixture(scope="module")
def large() -> Iterator[httpx.Client]:
    """Run a service with the default limits."""
    with running(ALONE) as server, client(server) as http:
        yield http


@pytest.mark.parametrize("name", WRONG)
def test_invalid_body_is_rejected_at_its_first_error(large: httpx.Client, name: str) -> None:
    """Collecting all errors once blocked the event loop, including /healthz, for 22 to 33 s."""
    path, body = WRONG[name]
    content = orjson.dumps(body)
    assert 1_500_000 < len(content) < 2**21
    begin = time.process_time()  # the service runs in this process
    answer = large.post(path, content=content, headers={"Content-Type": "application/json"})
    seconds = time.process_time() - begin
    assert error(answer, 422)
    assert len(answer.content) < 2000
    assert seconds < 3


def test_duplicate_layers_are_rejected(large: httpx.Client) -> None:
    """In earlier versions, [0] * 400 with 4,096 tokens gave a response of ten gigabytes."""
    for path in ("/v1/embed", "/v1/similarity", "/v1/project"):
        body = {"sentences": ["[a]"], "layer": [0] * 400}
        assert error(large.post(path, json=body), 422)["param"].startswith("layer")


def test_size_of_task_requests_is_limited_before_parsing(served: Settings) -> None:
    with running(replace(served, limits=Limits())) as server, client(server) as http:
        answer = http.post("/v1/tasks/people", json={"examples": ["a," * 300_000]})
        assert error(answer, 413)["limit"]["name"] == "task_bytes"
        assert metric(server, "elmo_items_total", work="parse") == 0


def test_response_size_is_limited_before_computing() -> None:
    with (
        running(replace(ALONE, limits=Limits(values=1000))) as server,
        client(server) as http,
    ):
        dim = embed(http, ["a"], layer="top").json()["dim"]
        most = 1000 // (3 * dim)
        assert embed(http, ["a"] * most).status_code == 200
        found = error(embed(http, ["a"] * (most + 1)), 422)
        assert found["limit"] == {
            "name": "max_values",
            "value": 1000,
            "actual": 3 * dim * (most + 1),
        }
        assert embed(http, ["a"] * (most + 1), pooling="mean").status_code == 200
