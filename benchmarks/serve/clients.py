"""Clients of the service. Each client has one connection and sends one request at a time.

They use a minimal HTTP implementation, because all clients share a core and must not become the
bottleneck.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

NPY = "application/x-npy"
JSON = "application/json"


@dataclass(frozen=True)
class Response:
    """A response. `retry` is the value of Retry-After in seconds."""

    status: int
    body: bytes
    retry: float


class Connection:
    """A persistent connection."""

    def __init__(self, host: str, port: int) -> None:
        self._address = host, port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes, accept: str) -> Response:
        """Send a request and read the response."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(*self._address, limit=2**20)
        assert self._reader is not None
        self._writer.write(request(path, body, accept) + body)
        await self._writer.drain()
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        lines = head.split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        length = int(headers.get("content-length", 0))
        content = await self._reader.readexactly(length)
        if headers.get("connection") == "close":
            await self.close()
        return Response(int(lines[0].split()[1]), content, float(headers.get("retry-after", 0)))

    async def close(self) -> None:
        """Close the connection."""
        if self._writer is not None:
            self._writer.close()
            with suppress(OSError):
                await self._writer.wait_closed()
        self._reader = self._writer = None


def request(path: str, body: bytes, accept: str = JSON) -> bytes:
    """Return the request line and headers of a request."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Accept: {accept}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()


@dataclass
class Tally:
    """The statuses and latencies that the clients of a run have measured."""

    seconds: float = 0.0
    tokens: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    bytes: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return a summary as JSON values."""
        times = np.array(self.latencies or [0.0])
        return {
            "seconds": round(self.seconds, 1),
            "requests": sum(self.statuses.values()),
            "statuses": dict(sorted(self.statuses.items())),
            "tokens": self.tokens,
            "tokens_per_second": round(self.tokens / self.seconds, 1),
            "p50_s": round(float(np.percentile(times, 50)), 3),
            "p99_s": round(float(np.percentile(times, 99)), 3),
            "longest_s": round(float(times.max()), 3),
            "mb_per_second": round(self.bytes / 1e6 / self.seconds, 2),
        }


async def load(
    host: str,
    port: int,
    supply: Iterator[list[str]],
    *,
    clients: int,
    seconds: float,
    accept: str,
    dim: int,
) -> Tally:
    """Let clients repeatedly request the top layer of one sentence.

    Only responses within `seconds` are counted. After status 429, clients wait for the time in
    `Retry-After`.
    """
    tally = Tally(seconds=seconds)
    begin = time.perf_counter()
    end = begin + seconds

    async def run_client() -> None:
        connection = Connection(host, port)
        while time.perf_counter() < end:
            sentence = next(supply)
            body = json.dumps({"sentences": [sentence], "layer": "top"}).encode()
            start = time.perf_counter()
            try:
                response = await connection.post("/v1/embed", body, accept)
            except (OSError, asyncio.IncompleteReadError) as error:
                tally.statuses[type(error).__name__] += 1
                await connection.close()
                continue
            now = time.perf_counter()
            if now > end:
                break
            tally.statuses[str(response.status)] += 1
            if response.status == 200:
                _check(response, sentence, accept, dim)
                tally.tokens += len(sentence)
                tally.latencies.append(now - start)
                tally.bytes += len(response.body)
            elif response.status == 429:
                await asyncio.sleep(min(response.retry, max(0.0, end - now)))
        await connection.close()

    await asyncio.gather(*(run_client() for _ in range(clients)))
    return tally


def _check(response: Response, sentence: list[str], accept: str, dim: int) -> None:
    if accept == NPY:
        expected = len(sentence) * dim * 4
        if not expected < len(response.body) <= expected + 256:
            raise AssertionError(
                f"Expected {expected} bytes and a header, but got {len(response.body)} bytes."
            )
    elif not response.body.endswith(b"}"):
        raise AssertionError(
            f"Expected a JSON object, but the response ends with {response.body[-20:]!r}."
        )
