"""Clients that mean no good, while others go on.

    python benchmarks/serve/abuse.py HOST PORT SECONDS

They are a process of their own, so that the others are kept waiting by the server or by nobody.
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

Abuser = Callable[[str, int, float, Counter[str]], Awaitable[None]]

_LARGE = json.dumps({"sentences": [["word"] * 20] * 100}).encode()  # 12 MB of JSON
_KILLED = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(bytes.fromhex(sys.argv[3]))
print(len(s.recv(1000)), flush=True)
import time; time.sleep(60)
"""


async def slowloris(host: str, port: int, end: float, seen: Counter[str]) -> None:
    """Send the head of a request a byte at a time."""
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
                    seen["slow head cut off"] += 1
                    break
        writer.close()


async def slow_body(host: str, port: int, end: float, seen: Counter[str]) -> None:
    """Promise a body and send little of it."""
    while time.perf_counter() < end:
        _, writer = await asyncio.open_connection(host, port)
        writer.write(request("/v1/embed", b"x" * 10_000) + b'{"sentences": ["')
        seen["slow body"] += 1
        for _ in range(20):
            await asyncio.sleep(0.5)
            with suppress(OSError):
                writer.write(b"a")
            if time.perf_counter() > end:
                break
        writer.close()


async def broken_json(host: str, port: int, end: float, seen: Counter[str]) -> None:
    """Send what is no JSON, and no request."""
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
            answer = await connection.post("/v1/embed", body, JSON)
            seen[f"broken JSON {answer.status}"] += 1
            await asyncio.sleep(0.02)
    await connection.close()


async def ten_megabytes(host: str, port: int, end: float, seen: Counter[str]) -> None:
    """Send a token of 10 MB."""
    body = json.dumps({"sentences": [["x" * 10_000_000]]}).encode()
    piece = 2**18
    while time.perf_counter() < end:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(request("/v1/embed", body))
            for first in range(0, len(body), piece):
                writer.write(body[first : first + piece])
                await writer.drain()
            status = (await reader.readline()).split()[1].decode()
            seen[f"10 MB token {status}"] += 1
        except (OSError, IndexError) as error:
            seen[f"10 MB token {type(error).__name__}"] += 1
        writer.close()
        await asyncio.sleep(0.5)


async def abort(host: str, port: int, end: float, seen: Counter[str]) -> None:
    """Ask, and leave before the answer."""
    body = json.dumps({"sentences": [["word"] * 100]}).encode()
    while time.perf_counter() < end:
        _, writer = await asyncio.open_connection(host, port)
        writer.write(request("/v1/embed", body) + body)
        await asyncio.sleep(0.05)
        writer.transport.abort()
        seen["left before the answer"] += 1
        await asyncio.sleep(0.1)


async def never_read(host: str, port: int, end: float, seen: Counter[str]) -> None:
    """Ask for a large answer and do not take it."""
    _, writer = await asyncio.open_connection(host, port)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    writer.write(request("/v1/embed", _LARGE) + _LARGE)
    seen["never read"] += 1
    await asyncio.sleep(max(0.0, end - time.perf_counter()))
    writer.transport.abort()


async def killed(host: str, port: int, end: float, seen: Counter[str]) -> None:
    """Be a process that is killed in the middle of an answer."""
    sent = (request("/v1/embed", _LARGE) + _LARGE).hex()
    command = [sys.executable, "-c", _KILLED, host, str(port), sent]
    while time.perf_counter() < end:
        process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
        assert process.stdout is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.1, end - time.perf_counter())):
                await process.stdout.readline()
                seen["killed in mid-answer"] += 1
        os.kill(process.pid, signal.SIGKILL)
        await process.wait()
        await asyncio.sleep(5)


#: Who does it, and how many of them.
ABUSERS: tuple[tuple[Abuser, int], ...] = (
    (slowloris, 100),
    (slow_body, 50),
    (broken_json, 2),
    (ten_megabytes, 1),
    (abort, 2),
    (never_read, 1),
    (killed, 1),
)


async def abuse(host: str, port: int, seconds: float) -> dict[str, int]:
    """Let all of them loose, and count what became of them."""
    seen: Counter[str] = Counter()
    end = time.perf_counter() + seconds
    every = [one(host, port, end, seen) for one, n in ABUSERS for _ in range(n)]
    for result in await asyncio.gather(*every, return_exceptions=True):
        if isinstance(result, BaseException):
            seen[f"abuser ended: {type(result).__name__}"] += 1
    return dict(sorted(seen.items()))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(abuse(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))))
