"""Limits, full queues, slow and broken clients, tokens, the end: nothing harms the others."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from elmokit.errors import ConfigError
from elmokit.serve import app, protocol
from elmokit.serve.limits import Limits
from elmokit.serve.server import Server
from elmokit.serve.settings import Settings, named
from tests.conftest import TINY_MODEL
from tests.serve.conftest import Gate, client, running

ALONE = Settings(port=0, models={"tiny": str(TINY_MODEL)}, device="cpu")


def embed(http: httpx.Client, *sentences: Any, **body: Any) -> httpx.Response:
    return http.post("/v1/embed", json={"sentences": list(sentences) or ["a b"], **body})


def error(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = answer.json()["error"]
    assert found["status"] == status
    return found


def connect(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=20)


# ------------------------------------------------------------------------------- requests, limits


def test_wrong_requests_are_told_what_is_wrong(http: httpx.Client) -> None:
    def post(body: bytes, kind: str = "application/json") -> httpx.Response:
        return http.post("/v1/embed", content=body, headers={"Content-Type": kind})

    assert "not JSON" in error(post(b'{"sentences": ["a"'), 400)["message"]
    assert error(post(b"\xff\xfe{}"), 400)["type"] == "bad_request"
    assert error(post(b"[" * 5000), 400)
    assert error(post(b""), 422)["param"] == "body"
    assert error(post(b"[1]"), 422)
    assert error(post(b'{"sentences": []}'), 422)["param"] == "sentences"
    assert error(post(b'{"sentences": [["a", 1]]}'), 422)["param"].startswith("sentences.0")
    assert error(post(b'{"sentences": ["\\ud800"]}'), 422)
    found = error(post(b'{"sentences": ["a"], "layer": 1}'), 422)
    assert "layer: Extra inputs" in found["message"]
    assert "layers: " in error(embed(http, layers="middle"), 422)["message"]
    assert "No layer 3" in error(embed(http, layers=[0, 3]), 422)["message"]
    assert "empty" in error(embed(http, layers=[]), 422)["message"]
    assert "3 finite weights" in error(embed(http, layers="mix", s=[1.0]), 422)["message"]
    assert 'goes with "layers": "mix"' in error(embed(http, s=[1, 0, 0]), 422)["message"]
    body = b'{"sentences": ["a"], "layers": "mix", "s": [NaN, 1, 1]}'
    assert error(post(body), 422)["param"].startswith("s")
    assert "Did you mean 'tiny'?" in error(embed(http, model="tinny"), 404)["message"]
    assert error(http.get("/v1/embed"), 405)
    assert error(http.get("/v1/nothing"), 404)
    headers = {"Accept": "image/png"}
    answer = http.post("/v1/embed", json={"sentences": ["a"]}, headers=headers)
    assert "application/x-npy" in error(answer, 406)["message"]
    assert embed(http).status_code == 200


def test_limits_are_named(http: httpx.Client) -> None:
    found = error(embed(http, "x" * 30_000), 413)
    assert found["limit"] == {"name": "max_body", "value": 20_000, "found": 30_018}
    found = error(embed(http, ["a"] * 300, ["b"] * 301), 422)
    assert found["limit"] == {"name": "max_tokens", "value": 600, "found": 601}
    found = error(embed(http, *["a"] * 41), 422)
    assert found["limit"] == {"name": "max_sentences", "value": 40, "found": 41}
    assert embed(http, ["a"] * 600).status_code == 200


def test_a_body_that_never_says_its_length_is_cut_off(http: httpx.Client) -> None:
    def pieces() -> Iterator[bytes]:
        yield b'{"sentences": ["'
        for _ in range(100):
            yield b"x" * 1000

    answer = http.post("/v1/embed", content=pieces(), headers={"Content-Type": "application/json"})
    assert error(answer, 413)["limit"]["name"] == "max_body"
    assert embed(http).status_code == 200


def test_ten_megabytes_in_a_token(http: httpx.Client) -> None:
    answer = http.post("/v1/embed", json={"sentences": [["x" * 10_000_000]]})
    assert error(answer, 413)["limit"]["found"] > 10_000_000


# ------------------------------------------------------------------------------------- the queue


def test_a_full_queue_is_429_and_says_when_to_come_again() -> None:
    settings = replace(ALONE, limits=Limits(queue=3))
    with running(settings) as server, ThreadPoolExecutor(8) as threads:
        gate = Gate(server.service.hosted.models["tiny"])

        def ask(n: int) -> httpx.Response:
            with client(server) as http:
                return embed(http, ["a"] * n)

        first = threads.submit(ask, 1)
        assert gate.entered.wait(10)  # computed now, and no more in the queue
        waiting = [threads.submit(ask, n) for n in (2, 3, 4)]
        with client(server) as http:
            wait_for(lambda: "elmo_queue_requests 3" in http.get("/metrics").text)
            answer = embed(http)
            found = error(answer, 429)
            assert int(answer.headers["retry-after"]) >= 1
            assert found["limit"] == {"name": "queue", "value": 3, "found": 3}
            assert http.get("/readyz").status_code == 200
            gate.open()
            assert all(f.result().status_code == 200 for f in (first, *waiting))
            assert gate.batches == [1, 3]  # those that waited ran together
            assert embed(http).status_code == 200


def test_many_tokens_that_wait_fill_the_queue_too() -> None:
    settings = replace(ALONE, limits=Limits(queue_tokens=100))
    with running(settings) as server, ThreadPoolExecutor(8) as threads:
        gate = Gate(server.service.hosted.models["tiny"])

        def ask(n: int) -> int:
            with client(server) as http:
                return embed(http, ["a"] * n).status_code

        first = threads.submit(ask, 1)
        assert gate.entered.wait(10)
        with client(server) as http:
            second = threads.submit(ask, 300)  # alone it may cost more than the queue holds
            wait_for(lambda: "elmo_queue_tokens 300" in http.get("/metrics").text)
            assert ask(1) == 429
        gate.open()
        assert (first.result(), second.result()) == (200, 200)


def test_a_large_request_does_not_make_a_small_one_wait() -> None:
    """Sentences are taken from all requests in turn, so the small one is in the first batch."""
    with running(ALONE) as server, ThreadPoolExecutor(4) as threads:
        gate = Gate(server.service.hosted.models["tiny"])
        ended: list[str] = []

        def ask(name: str, *sentences: Any) -> None:
            with client(server) as http:
                assert embed(http, *sentences).status_code == 200
            ended.append(name)

        with client(server) as http:
            start = threads.submit(ask, "start", "a")
            assert gate.entered.wait(10)
            large = threads.submit(ask, "large", *[["a"] * 16] * 250)
            wait_for(lambda: "elmo_queue_tokens 4000" in http.get("/metrics").text)
            small = threads.submit(ask, "small", "b c")
            wait_for(lambda: "elmo_queue_requests 2" in http.get("/metrics").text)
        gate.open()
        for one in (start, large, small):
            one.result()
        assert ended == ["start", "small", "large"]


def test_what_takes_too_long_is_504_and_is_not_computed_later() -> None:
    settings = replace(ALONE, limits=Limits(timeout=0.5))
    with running(settings) as server, ThreadPoolExecutor(4) as threads:
        gate = Gate(server.service.hosted.models["tiny"])

        def ask(word: str) -> httpx.Response:
            with client(server) as http:
                return embed(http, word)

        first = threads.submit(ask, "a")
        assert gate.entered.wait(10)
        second = threads.submit(ask, "b")
        for one in (first, second):
            assert "after 0.5 seconds" in error(one.result(), 504)["message"]
        gate.open()
        with client(server) as http:
            assert embed(http).status_code == 200
        assert gate.batches == [1, 1]  # the first, and this one; the second was given up


def test_an_item_that_fails_fails_its_own_request_only() -> None:
    with running(ALONE) as server, ThreadPoolExecutor(8) as threads:
        model = server.service.hosted.models["tiny"]
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
        assert gate.entered.wait(10)
        words = ["a", "boom", "b"]
        asked = [threads.submit(ask, word) for word in words]
        with client(server) as http:
            wait_for(lambda: "elmo_queue_requests 3" in http.get("/metrics").text)
            gate.open()
            answers = [one.result() for one in asked]
            assert [answer.status_code for answer in answers] == [200, 500, 200]
            assert "a bug" not in answers[1].text
            assert "elmo_failures_total" in http.get("/metrics").text
        assert start.result().status_code == 200
        model.compute = inner  # type: ignore[method-assign]


# -------------------------------------------------------------------------------- rough clients


def test_clients_that_leave_take_their_work_with_them() -> None:
    with running(ALONE) as server, ThreadPoolExecutor(4) as threads:
        gate = Gate(server.service.hosted.models["tiny"])
        with client(server) as http:
            first = threads.submit(embed, http, "a")
            assert gate.entered.wait(10)
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
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.3)
    settings = replace(ALONE, limits=Limits(timeout=0.6))
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


def test_garbage_is_no_http(server: Server, http: httpx.Client) -> None:
    for garbage in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"\0" * 100_000):
        with connect(server) as sock:
            sock.sendall(garbage + b"\r\n\r\n")
            assert closed(sock)[:12] in (b"", b"HTTP/1.1 400")
    assert embed(http).status_code == 200


# ---------------------------------------------------------------------------------- who may ask


def test_a_bearer_token_guards_the_api() -> None:
    with running(replace(ALONE, token="secret")) as server, client(server) as http:
        found = embed(http)
        assert error(found, 401)["type"] == "unauthorized"
        assert found.headers["www-authenticate"] == "Bearer"
        for path in ("/v1/models", "/metrics", "/openapi.json"):
            assert http.get(path).status_code == 401
        for wrong in ("secret", "Bearer secre", "Bearer secret2", "bearer secret", "Bearer \xe9"):
            headers = {"Authorization": wrong.encode("latin-1")}
            assert http.get("/v1/models", headers=headers).status_code == 401
        http.headers["Authorization"] = "Bearer secret"
        assert embed(http).status_code == 200
        schema = http.get("/openapi.json").json()
        assert schema["security"] == [{"bearer": []}]
        del http.headers["Authorization"]
        assert http.get("/healthz").status_code == 200
        assert http.get("/readyz").status_code == 200


def test_cors_is_off_unless_asked_for(http: httpx.Client) -> None:
    origin = {"Origin": "https://example.org"}
    assert "access-control-allow-origin" not in http.get("/v1/models", headers=origin).headers
    asks = {**origin, "Access-Control-Request-Method": "POST"}
    assert http.options("/v1/embed", headers=asks).status_code == 405
    with running(replace(ALONE, cors=(origin["Origin"],))) as server, client(server) as other:
        answer = other.get("/v1/models", headers=origin)
        assert answer.headers["access-control-allow-origin"] == "https://example.org"
        assert other.options("/v1/embed", headers=asks).status_code == 200
        asks["Origin"] = "https://evil.example"
        assert other.options("/v1/embed", headers=asks).status_code == 400


def test_the_page_comes_from_its_folder_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    static = tmp_path / "static"
    (static / "more").mkdir(parents=True)
    (static / "index.html").write_text("<p>page</p>")
    (static / "more" / "a.js").write_text("1")
    (tmp_path / "secret.txt").write_text("secret")
    (static / "link.txt").symlink_to(tmp_path / "secret.txt")
    monkeypatch.setattr(app, "STATIC", static)
    with running(ALONE) as server, client(server) as http:
        answer = http.get("/")
        assert answer.text == "<p>page</p>"
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert http.get("/more/a.js").text == "1"
        for path in (
            "/../secret.txt",
            "/%2e%2e/secret.txt",
            "/..%2fsecret.txt",
            "/more/..%2f..%2fsecret.txt",
            "//etc/passwd",
            "/%2fetc%2fpasswd",
            "/link.txt",
            "/more",
            "/..%5csecret.txt",
            "/%00",
        ):
            with connect(server) as sock:
                sock.sendall(
                    f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode()
                )
                answered = closed(sock)
            status = int(answered.split()[1])
            assert status in (404, 307, 400), path
            assert b"secret\n" not in answered
            assert b"root:" not in answered
        assert http.post("/index.html").status_code == 405
        assert http.put("/new.txt", content=b"x").status_code == 405
        assert not (static / "new.txt").exists()


# --------------------------------------------------------------------------------------- the end


def test_the_end_finishes_what_was_taken() -> None:
    with ThreadPoolExecutor(4) as threads, running(ALONE) as server, client(server) as http:
        gate = Gate(server.service.hosted.models["tiny"])
        asked = [threads.submit(embed, http, "a")]
        assert gate.entered.wait(10)
        asked.append(threads.submit(embed, http, "b"))
        with client(server) as other:
            wait_for(lambda: "elmo_queue_requests 1" in other.get("/metrics").text)
            server.stop()
            time.sleep(0.3)
            with pytest.raises(httpx.HTTPError):
                other.get("/readyz")  # it listens no more
        assert server.service.status == "stopping"
        gate.open()
        assert [one.result().status_code for one in asked] == [200, 200]


def test_what_is_refused_while_it_loads_and_stops() -> None:
    with running(ALONE) as server, client(server) as http:
        hosted, server.service._hosted = server.service._hosted, None
        found = embed(http)
        assert error(found, 503)["type"] == "not_ready"
        assert found.headers["retry-after"]
        assert http.get("/readyz").json() == {"status": "loading"}
        assert http.get("/readyz").status_code == 503
        assert http.get("/healthz").status_code == 200
        server.service._hosted = hosted
        server.service.stop()
        assert "stopping" in error(embed(http), 503)["message"]
        assert http.get("/readyz").json() == {"status": "stopping"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_command_and_its_signals(number: int, code: int) -> None:
    program = "from elmokit.cli.main import run; run()"
    arguments = ["serve", "--no-bundled", "--model", f"tiny={TINY_MODEL}", "--port", "0", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "ELMO_SERVE_TOKEN": "of the environment"},
    )
    assert process.stdout is not None
    url = json.loads(process.stdout.readline())["url"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", url)
    assert httpx.get(f"{url}/v1/models").status_code == 401
    headers = {"Authorization": "Bearer of the environment"}
    answer = httpx.post(f"{url}/v1/embed", json={"sentences": ["a"]}, headers=headers)
    assert np.array(answer.json()["sentences"][0]["vectors"]).shape == (3, 1, 32)
    process.send_signal(number)
    _, told = process.communicate(timeout=30)
    assert process.returncode == code, told
    assert "Traceback" not in told
    assert "stopped" in told


def test_what_cannot_be_served_is_said(tmp_path: Path, full_model: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="Choose another with --port"):
            Server(replace(ALONE, port=taken.getsockname()[1]))
    with pytest.raises(ConfigError, match="There is no address"):
        Server(replace(ALONE, host="no.such.host.example"))
    with pytest.raises(ConfigError, match="no trained task model"):
        Server(replace(ALONE, tasks={"x": tmp_path})).run()
    with pytest.raises(ConfigError, match="there is no model to serve"):
        replace(ALONE, models={})
    with pytest.raises(ConfigError, match="timeout should be more than 0"):
        Limits(timeout=0)
    with pytest.raises(ConfigError, match="expected NAME=MODEL"):
        named(["a/b"], "model")
    with pytest.raises(ConfigError, match="names 'a' twice"):
        named(["a=1", "a=2"], "model")


def test_an_index_of_another_model_is_refused(served: Settings, full_model: Path) -> None:
    settings = replace(served, models={"full": str(full_model)}, tasks={})
    with pytest.raises(ConfigError, match="made with another model"):
        Server(settings).run()


def test_without_the_extra_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from elmokit.cli.main import run; sys.argv = ['elmo', 'serve']; run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "pip install 'elmokit[serve]'" in done.stderr
    assert "Traceback" not in done.stderr


def wait_for(true: Any, seconds: float = 15.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)


def closed(sock: socket.socket) -> bytes:
    """Read until the other side closes."""
    found = b""
    try:
        while piece := sock.recv(65536):
            found += piece
    except ConnectionResetError:
        pass
    return found
