"""Misbehaving clients: slow, malformed, aborted and oversized requests.

    python benchmarks/serve/abuse.py HOST PORT SECONDS

These clients run in a separate process, so that they do not slow down the well-behaved clients.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress

from clients import JSON, Connection, request

Client = Callable[[str, int, float, Counter[str]], Awaitable[None]]

_LARGE = json.dumps({"sentences": [["word"] * 20] * 100}).encode()  # the response is 12 MB of JSON
_KILLED_CLIENT = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(bytes.fromhex(sys.argv[3]))
print(len(s.recv(1000)), flush=True)
import time; time.sleep(60)
"""


async def slowloris(host: str, port: int, end: float, counts: Counter[str]) -> None:
    """Send the headers of a request one byte at a time."""
    while time.perf_counter() < end:
        reader, writer = await asyncio.open_connection(host, port)
        with suppress(OSError):
            for byte in b"POST /v1/embed HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"a" * 1000:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.5)
                if time.perf_counter() > end:
                    break
                if reader.at_eof():
                    counts["slow headers disconnected"] += 1
                    break
        writer.close()


async def slow_body(host: str, port: int, end: float, counts: Counter[str]) -> None:
    """Announce a body and send only a small part of it."""
    while time.perf_counter() < end:
        _, writer = await asyncio.open_connection(host, port)
        writer.write(request("/v1/embed", b"x" * 10_000) + b'{"sentences": ["')
        counts["slow body"] += 1
        for _ in range(20):
            await asyncio.sleep(0.5)
            with suppress(OSError):
                writer.write(b"a")
            if time.perf_counter() > end:
                break
        writer.close()


async def broken_json(host: str, port: int, end: float, counts: Counter[str]) -> None:
    """Send invalid JSON and invalid requests."""
    connection = Connection(host, port)
    bodies = [
        b"{",
        b"[" * 100_000,
        b"\xff\xfe",
        b'{"sentences": 3}',
        b'{"sentences": ["a"], "x": 1}',
    ]
    while time.perf_counter() < end:
        for body in bodies:
            response = await connection.post("/v1/embed", body, JSON)
            counts[f"broken JSON {response.status}"] += 1
            await asyncio.sleep(0.02)
    await connection.close()


async def ten_megabytes(host: str, port: int, end: float, counts: Counter[str]) -> None:
    """Send a token of 10 MB."""
    body = json.dumps({"sentences": [["x" * 10_000_000]]}).encode()
    chunk = 2**18
    while time.perf_counter() < end:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(request("/v1/embed", body))
            for first in range(0, len(body), chunk):
                writer.write(body[first : first + chunk])
                await writer.drain()
            status = (await reader.readline()).split()[1].decode()
            counts[f"10 MB token {status}"] += 1
        except (OSError, IndexError) as error:
            counts[f"10 MB token {type(error).__name__}"] += 1
        writer.close()
        await asyncio.sleep(0.5)


async def disconnect(host: str, port: int, end: float, counts: Counter[str]) -> None:
    """Send requests and disconnect before the response."""
    body = json.dumps({"sentences": [["word"] * 100]}).encode()
    while time.perf_counter() < end:
        _, writer = await asyncio.open_connection(host, port)
        writer.write(request("/v1/embed", body) + body)
        await asyncio.sleep(0.05)
        writer.transport.abort()
        counts["disconnected before the response"] += 1
        await asyncio.sleep(0.1)


async def never_read(host: str, port: int, end: float, counts: Counter[str]) -> None:
    """Request a large response and do not read it."""
    _, writer = await asyncio.open_connection(host, port)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(request("/v1/embed", _LARGE) + _LARGE)
    counts["response not read"] += 1
    await asyncio.sleep(max(0.0, end - time.perf_counter()))
    writer.transport.abort()


async def kill(host: str, port: int, end: float, counts: Counter[str]) -> None:
    """Start a client process and kill it while it receives a response."""
    sent = (request("/v1/embed", _LARGE) + _LARGE).hex()
    command = [sys.executable, "-c", _KILLED_CLIENT, host, str(port), sent]
    while time.perf_counter() < end:
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.1, end - time.perf_counter())):
                await process.stdout.readline()
                counts["killed during the response"] += 1
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        await asyncio.sleep(5)


#: The kinds of clients, and the number of clients of each kind.
CLIENTS: tuple[tuple[Client, int], ...] = (
    (slowloris, 100),
    (slow_body, 50),
    (broken_json, 2),
    (ten_megabytes, 1),
    (disconnect, 2),
    (never_read, 1),
    (kill, 1),
)


async def abuse(host: str, port: int, seconds: float) -> dict[str, int]:
    """Run all clients. Return the number of times that each outcome occurred."""
    counts: Counter[str] = Counter()
    end = time.perf_counter() + seconds
    runs = [client(host, port, end, counts) for client, n in CLIENTS for _ in range(n)]
    for result in await asyncio.gather(*runs, return_exceptions=True):
        if isinstance(result, BaseException):
            counts[f"client failed: {type(result).__name__}"] += 1
    return dict(sorted(counts.items()))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(abuse(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))))
