"""The load generator of benchmarks/serve, for one second and with a tiny server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from types import ModuleType

import httpx
import pytest

from tests.serve.conftest import ALONE, Server, running

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks" / "serve"


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    monkeypatch.syspath_prepend(str(FOLDER))
    import abuse
    import clients

    return clients, abuse


@pytest.fixture
def server() -> Iterator[Server]:
    with running(ALONE) as found:
        yield found
    for name in ("abuse", "clients"):
        sys.modules.pop(name, None)


@pytest.mark.slow
def test_valid_requests_succeed_among_misbehaving_clients(
    scripts: tuple[ModuleType, ModuleType], server: Server
) -> None:
    clients, abuse = scripts
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    sentences = cycle([["a", "b"], ["c", "d", "e"]])

    async def both() -> tuple[dict[str, object], dict[str, int]]:
        good = clients.load(
            *(host, int(port), sentences),
            clients=5,
            seconds=4,
            accept=clients.NPY,
            dim=32,
        )
        tally, seen = await asyncio.gather(good, abuse.abuse(host, int(port), 4))
        return tally.to_dict(), seen

    tally, seen = asyncio.run(both())
    assert set(tally["statuses"]) == {"200"}  # type: ignore[arg-type,call-overload]
    assert tally["tokens_per_second"] > 0  # type: ignore[operator]
    assert seen["broken JSON 400"] > 0
    assert seen["10 MB token 413"] > 0
    assert not any("failed" in key for key in seen)
    assert 'status="500"' not in httpx.get(f"{server.url}/metrics").text
