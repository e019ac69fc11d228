"""Clients that leave, drip, send garbage or do not take their answer: nobody else is harmed."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import httpx
import numpy as np
import pytest

from elmokit.serve import protocol
from elmokit.serve.limits import Limits
from elmokit.serve.server import Server
from tests.serve.conftest import (
    ALONE,
    Gate,
    client,
    closed,
    connect,
    embed,
    running,
    wait_for,
)


def test_clients_that_leave_take_their_work_with_them() -> None:
    with running(ALONE) as server, ThreadPoolExecutor(4) as threads:
        gate = Gate(server.service.hosted.models["tiny"])
        with client(server) as http:
            first = threads.submit(embed, http, "a")
            assert gate.entered.wait(60)
            body = json.dumps({"sentences": ["b"]}).encode()
            head = f"POST /v1/embed HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
            head += "Content-Type: application/json\r\n\r\n"
            gone = connect(server)
            gone.sendall(head.encode() + body)
            with client(server) as other:
                wait_for(lambda: "elmo_queue_requests 1" in other.get("/metrics").text)
                gone.close()
                wait_for(lambda: "elmo_queue_requests 0" in other.get("/metrics").text)
                assert "elmo_disconnects_total 1" in other.get("/metrics").text
            gate.open()
            assert first.result().status_code == 200
        assert gate.batches == [1]


def test_slow_and_silent_clients_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 1.0)
    settings = replace(ALONE, limits=Limits(timeout=2))
    with running(settings) as server:
        silent, dripping, idle_body = (connect(server) for _ in range(3))
        dripping.sendall(b"POST /v1/embed HTTP/1.1\r\nHo")
        idle_body.sendall(
            b"POST /v1/embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 100\r\n\r\n{"
        )
        with client(server) as http:
            assert embed(http).status_code == 200  # nobody else waits for them
        assert closed(silent) == b""
        assert closed(dripping) == b""
        answer = closed(idle_body)
        assert b" 408 " in answer.splitlines()[0]
        assert b"found 1 bytes" in answer


def test_a_client_that_does_not_take_its_answer_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("elmokit.serve.guard._SLOWEST", 1e12)
    settings = replace(ALONE, limits=Limits(timeout=1.0, tokens=200_000, queue_tokens=10**7))
    with running(settings) as server:
        server.service.hosted.models["tiny"].compute = lambda sentences, state: (  # type: ignore
            [np.zeros((3, len(words), 32), np.float32) for words in sentences],
            None,
        )
        body = json.dumps({"sentences": [["a"] * 2000] * 40}).encode()  # 30 MB of vectors
        head = f"POST /v1/embed HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        head += "Content-Type: application/json\r\nAccept: application/x-npy\r\n\r\n"
        stuck = connect(server)
        stuck.sendall(head.encode() + body)
        with client(server) as http:
            wait_for(lambda: "elmo_disconnects_total 1" in http.get("/metrics").text)
            assert embed(http).status_code == 200
        stuck.close()


def test_all_bodies_together_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.serve.guard._BODIES", 2)
    with running(replace(ALONE, limits=Limits(body=10_000))) as server, client(server) as http:
        head = b"POST /v1/embed HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        slow = [connect(server) for _ in range(2)]
        for sock in slow:
            sock.sendall(head + b"Content-Length: 10000\r\n\r\n" + b"x" * 9_990)
        wait_for(lambda: embed(http, "a" * 100).status_code == 429)
        for sock in slow:
            sock.close()
        wait_for(lambda: embed(http, "a" * 100).status_code == 200)


def test_garbage_is_no_http(server: Server, http: httpx.Client) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\0" * 100_000):
        with connect(server) as sock:
            sock.sendall(garbage + b"\r\n\r\n")
            assert closed(sock)[:12] in (b"", b"HTTP/1.1 400")
    assert embed(http).status_code == 200
