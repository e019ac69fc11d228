"""Clients that disconnect, stall, send garbage or do not read responses do not affect others."""

from __future__ import annotations

import json
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import numpy as np
import pytest

from elmokit.serve import server as server_module
from elmokit.serve.server import Server
from elmokit.serve.settings import Limits
from tests.serve.conftest import (
    ALONE,
    Gate,
    answered,
    client,
    closed,
    connect,
    embed,
    error,
    metric,
    running,
    wait_for,
)

_BODY = json.dumps({"sentences": [["a"] * 2000] * 40}).encode()
#: A request for 30 MB of vectors.
LARGE = (
    b"POST /v1/embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Accept: application/x-npy\r\nContent-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


def test_requests_of_disconnected_clients_are_cancelled() -> None:
    with running(ALONE) as server, ThreadPoolExecutor(4) as threads:
        gate = Gate(server.service.resources.models["tiny"])
        with client(server) as http:
            first = threads.submit(embed, http, "a")
            assert gate.entered.wait(60)
            body = json.dumps({"sentences": ["b"]}).encode()
            head = f"POST /v1/embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
            head += "Content-Type: application/json\r\n\r\n"
            gone = connect(server)
            gone.sendall(head.encode() + body)
            wait_for(lambda: metric(server, "elmo_queue_requests") == 1)
            gone.close()
            wait_for(lambda: answered(server, 499) == 1)
            wait_for(lambda: metric(server, "elmo_queue_requests") == 0)
            gate.open()
            assert first.result().status_code == 200
        assert gate.batches == [1]


def test_slow_and_idle_clients_are_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "_HEADER_SECONDS", 1.0)
    settings = replace(ALONE, limits=Limits(timeout=2))
    with running(settings) as server:
        silent, dripping, idle_body = (connect(server) for _ in range(3))
        dripping.sendall(b"POST /v1/embed HTTP/1.1\r\nHo")
        idle_body.sendall(
            b"POST /v1/embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        with client(server) as http:
            assert embed(http).status_code == 200  # other clients are not delayed
        assert closed(silent) == b""
        assert closed(dripping) == b""
        answer = closed(idle_body)
        assert b" 408 " in answer.splitlines()[0]


def test_client_that_does_not_read_its_response_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("elmokit.serve.middleware._MIN_SPEED", 1e12)
    settings = replace(ALONE, limits=Limits(timeout=1.0, tokens=200_000, body=2**22))
    with running(settings) as server:
        server.service.resources.models["tiny"].compute = lambda sentences, state: [  # type: ignore
            np.zeros((3, len(words), 32), np.float32) for words in sentences
        ]
        stuck = connect(server)
        stuck.sendall(LARGE)
        with client(server) as http:
            wait_for(lambda: answered(server, 499) == 1)
            assert embed(http).status_code == 200
        stuck.close()


def test_client_that_does_not_read_the_end_of_its_response_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In earlier versions, the connection stayed open forever, and delayed the shutdown."""
    bind = server_module._bind

    def small_buffer(host: str, port: int) -> socket.socket:
        sock = bind(host, port)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return sock

    monkeypatch.setattr(server_module, "_bind", small_buffer)
    monkeypatch.setattr("elmokit.serve.middleware._MIN_SPEED", 1e12)
    body = json.dumps({"sentences": [["a"] * 100]}).encode()
    head = b"POST /v1/embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with running(replace(ALONE, limits=Limits(timeout=3))) as server, socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.connect(("127.0.0.1", int(server.url.rsplit(":", 1)[1])))
        stuck.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        wait_for(lambda: answered(server, 499) + answered(server, 200) == 1)
        assert answered(server, 499) == 1
        wait_for(lambda: not server._uvicorn.server_state.connections)


def test_total_size_of_bodies_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.serve.middleware._MAX_BODIES", 2)
    with (
        running(replace(ALONE, limits=Limits(body=10_000, values=5_000))) as server,
        client(server) as http,
    ):
        head = b"POST /v1/embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        slow = [connect(server) for _ in range(2)]
        for sock in slow:
            sock.sendall(head + b"Content-Length: 10000\r\n\r\n" + b"x" * 9_990)
        wait_for(lambda: embed(http, "a" * 100).status_code == 429)
        for sock in slow:
            sock.close()
        wait_for(lambda: embed(http, "a" * 100).status_code == 200)


def test_invalid_http_is_rejected(server: Server, http: httpx.Client) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\0" * 100_000):
        with connect(server) as sock:
            sock.sendall(garbage + b"\r\n\r\n")
            assert closed(sock)[:12] in (b"", b"HTTP/1.1 400")
    assert embed(http).status_code == 200


def test_total_size_of_responses_is_limited() -> None:
    """Four responses of the maximum size: further requests are rejected until those are sent."""
    limits = Limits(values=96 * 100, body=1000)
    with running(replace(ALONE, limits=limits)) as server, ThreadPoolExecutor(4) as threads:
        gate = Gate(server.service.resources.models["tiny"])

        def ask(n: int) -> httpx.Response:
            with client(server) as http:
                return embed(http, ["a"] * n)

        waiting = [threads.submit(ask, 90)]
        assert gate.entered.wait(60)  # before the others arrive, which could share its batch
        waiting += [threads.submit(ask, 90) for _ in range(3)]
        wait_for(lambda: metric(server, "elmo_queue_requests") == 3)
        rejected = ask(90)
        assert error(rejected, 429)
        assert rejected.headers["retry-after"] == "1"
        gate.open()
        assert [one.result().status_code for one in waiting] == [200] * 4
        wait_for(lambda: ask(90).status_code == 200)


def test_idle_connections_are_closed_for_new_ones(caplog: pytest.LogCaptureFixture) -> None:
    """In earlier versions, 3,000 of them exhausted the file descriptors and flooded the log."""
    with running(replace(ALONE, limits=Limits(connections=10))) as server:
        idle = [connect(server) for _ in range(100)]
        with client(server) as http:
            assert embed(http).status_code == 200
            assert len(server._uvicorn.server_state.connections) <= 10
        assert all(closed(sock) == b"" for sock in idle[:80])
        for sock in idle:
            sock.close()
    assert not caplog.records


def test_requests_in_progress_keep_their_connections() -> None:
    limits = Limits(connections=4)
    with running(replace(ALONE, limits=limits)) as server, ThreadPoolExecutor(4) as threads:
        gate = Gate(server.service.resources.models["tiny"])
        with client(server) as http:
            pending = threads.submit(embed, http, "a")
            assert gate.entered.wait(60)
            idle = [connect(server) for _ in range(20)]
            assert all(closed(sock) == b"" for sock in idle[:16])
            gate.open()
            assert pending.result().status_code == 200
        for sock in idle:
            sock.close()


def test_incomplete_requests_are_closed_for_new_connections() -> None:
    head = b"POST /v1/embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"
    with running(replace(ALONE, limits=Limits(connections=4))) as server:
        slow = [connect(server) for _ in range(4)]
        for sock in slow:
            sock.sendall(head)
        state = server._uvicorn.server_state
        wait_for(lambda: len(state.tasks) == 4)
        with client(server) as http:
            assert embed(http).status_code == 200
        assert closed(slow[0]) == b""
        for sock in slow:
            sock.close()


def test_invalid_body_after_an_early_response_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with running(replace(ALONE, token="secret")) as server, connect(server) as sock:
        sock.sendall(
            b"POST /v1/embed HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        )
        assert sock.recv(65536).startswith(b"HTTP/1.1 401")
        sock.sendall(b"not a chunk\r\n")
        closed(sock)
    assert not caplog.records


def test_aborted_response_does_not_flood_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with running(replace(ALONE, limits=Limits(tokens=200_000, body=2**22))) as server:
        server.service.resources.models["tiny"].compute = lambda sentences, state: [  # type: ignore
            np.zeros((3, len(words), 32), np.float32) for words in sentences
        ]
        gone = connect(server)
        gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        gone.sendall(LARGE)
        assert gone.recv(100_000)
        gone.close()  # reset in the middle of the response
        wait_for(lambda: answered(server, 499) == 1)
    assert len(caplog.records) < 10


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 3\r\nTransfer-Encoding: chunked",
        b"Transfer-Encoding: chunked\r\nContent-Length: 3",
    ],
)
def test_conflicting_content_lengths_are_rejected(server: Server, head: bytes) -> None:
    """Proxies disagree on which one counts, which allows request smuggling."""
    with connect(server) as sock:
        sock.sendall(
            b"POST /v1/embed HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            + head
            + b"\r\n\r\n0\r\n\r\n"
        )
        assert closed(sock).startswith(b"HTTP/1.1 400")
