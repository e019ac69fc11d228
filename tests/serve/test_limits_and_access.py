"""Rejected requests: invalid, too large, without a token, or from another origin."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from elmokit.serve import app
from elmokit.serve.server import Server
from tests.serve.conftest import (
    ALONE,
    client,
    closed,
    connect,
    embed,
    error,
    running,
)

# ------------------------------------------------------------------------------ requests and limits


def test_errors_describe_what_is_wrong_with_the_request(http: httpx.Client) -> None:
    def post(body: bytes, kind: str = "application/json") -> httpx.Response:
        return http.post("/v1/embed", content=body, headers={"Content-Type": kind})

    assert "not valid JSON" in error(post(b'{"sentences": ["a"'), 400)["message"]
    assert error(post(b"\xff\xfe{}"), 400)
    assert error(post(b"[" * 5000), 400)
    assert error(post(b""), 422)["param"] == "body"
    assert error(post(b"[1]"), 422)
    found = error(post(b'{"sentences": ["a"]}', "application/x-www-form-urlencoded"), 422)
    assert "Content-Type: application/json; found application/x-www-form" in found["message"]
    assert error(post(b'{"sentences": []}'), 422)["param"] == "sentences"
    assert error(post(b'{"sentences": [["a", 1]]}'), 422)["param"].startswith("sentences.0")
    assert error(post(b'{"sentences": ["\\ud800"]}'), 400)
    found = error(post(b'{"sentences": ["a"], "layer_": 1}'), 422)
    assert "layer_: Extra inputs" in found["message"]
    for layer in ("middle", [0, 3], 3, -1):
        found = error(embed(http, layer=layer), 422)
        assert found["message"].endswith("expected 0 to 2, top, average, concat, mix or all.")
        assert found["param"] == "layer"
    assert error(embed(http, layer=[]), 422)["param"].startswith("layer")
    assert "3 finite weights" in error(embed(http, layer="mix", mix=[1.0]), 422)["message"]
    assert "requires layer='mix'" in error(embed(http, mix=[1, 0, 0]), 422)["message"]
    # In earlier versions, vectors that overflowed were null with status 200.
    assert error(embed(http, layer="mix", gamma=1e38), 422)["param"].startswith("gamma")
    assert error(embed(http, layer="mix", mix=[1e38, 1e38, 1e38]), 422)["param"].startswith("mix")
    body = b'{"sentences": ["a"], "layer": "mix", "mix": [NaN, 1, 1]}'
    assert error(post(body), 400)  # NaN is not valid JSON
    assert "Did you mean 'tiny'?" in error(embed(http, model="tinny"), 404)["message"]
    assert error(http.get("/v1/embed"), 405)
    assert error(http.get("/v1/nothing"), 404)
    headers = {"Accept": "image/png"}
    answer = http.post("/v1/embed", json={"sentences": ["a"]}, headers=headers)
    assert "application/x-npy" in error(answer, 406)["message"]
    assert embed(http).status_code == 200


def test_limits_are_reported(http: httpx.Client) -> None:
    found = error(embed(http, "x" * 30_000), 413)
    assert found["limit"] == {"name": "max_body", "value": 20_000, "actual": 30_018}
    found = error(embed(http, ["a"] * 300, ["b"] * 301), 422)
    assert found["limit"] == {"name": "max_tokens", "value": 600, "actual": 601}
    found = error(embed(http, *["a"] * 41), 422)
    assert found["limit"] == {"name": "max_sentences", "value": 40, "actual": 41}
    assert embed(http, ["a"] * 600).status_code == 200


def test_body_of_unknown_length_is_limited(http: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"sentences": ["'
        for _ in range(100):
            yield b"x" * 1000

    answer = http.post("/v1/embed", content=chunks(), headers={"Content-Type": "application/json"})
    assert error(answer, 413)["limit"]["name"] == "max_body"
    assert embed(http).status_code == 200


def test_large_body_is_rejected_before_it_is_sent(server: Server) -> None:
    with connect(server) as sock:
        sock.sendall(
            b"POST /v1/embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
            b"Expect: 100-continue\r\n\r\n"
        )
        assert closed(sock).startswith(b"HTTP/1.1 413")  # the next request would be read as a body


def test_compressed_bodies_are_rejected(http: httpx.Client) -> None:
    body, headers = gzip.compress(b"{}"), {"Content-Encoding": "gzip"}
    found = error(http.post("/v1/embed", content=body, headers=headers), 415)
    assert "gzip" in found["message"]


def test_token_of_ten_megabytes_is_rejected(http: httpx.Client) -> None:
    answer = http.post("/v1/embed", json={"sentences": [["x" * 10_000_000]]})
    assert error(answer, 413)["limit"]["actual"] > 10_000_000


# ------------------------------------------------------------------------------------------- access


def test_api_requires_the_bearer_token() -> None:
    with running(replace(ALONE, token="secret")) as server, client(server) as http:
        found = embed(http)
        assert error(found, 401)
        assert found.headers["www-authenticate"] == "Bearer"
        # In earlier versions, the last two were answered without a token.
        paths = ("/v1/models", "/metrics", "/openapi.json", "/metrics%0A", "/openapi.json%0A")
        for path in paths:
            assert http.get(path).status_code == 401
        for wrong in ("secret", "Bearer secre", "Bearer secret2", "bearer secret", "Bearer \xe9"):
            headers = {"Authorization": wrong.encode("latin-1")}
            assert http.get("/v1/models", headers=headers).status_code == 401
        http.headers["Authorization"] = "Bearer secret"
        assert embed(http).status_code == 200
        schema = http.get("/openapi.json").json()
        assert schema["paths"]["/v1/embed"]["post"]["security"] == [{"bearer": []}]
        del http.headers["Authorization"]
        assert http.get("/healthz").status_code == 200
        assert http.get("/readyz").status_code == 200


def test_unknown_host_names_are_rejected(http: httpx.Client) -> None:
    """Prevents DNS rebinding, in which a page resolves its own host name to this address."""

    def status(host: str, at: httpx.Client = http, path: str = "/v1/models") -> int:
        return at.get(path, headers={"Host": host}).status_code

    for path in ("/v1/models", "/", "/healthz", "/metrics", "/v1/models/"):
        assert status("evil.example", path=path) == 400
        assert status("evil.example:8017", path=path) == 400
    invalid = ("[::1", "[::1]evil", "[::1]:evil", "[localhost]", "localhost:80x", "evil@localhost")
    for host in ("localhost.evil.example", "", ":8017", *invalid):
        assert status(host) == 400
    for host in ("localhost", "LOCALHOST:80", "127.0.0.1:8017", "[::1]:80", "192.0.2.1"):
        assert status(host) == 200
    assert status(socket.gethostname()) == 200
    with running(replace(ALONE, allowed_hosts=("elmo.example",))) as server, client(server) as at:
        assert status("elmo.example", at) == 200
        assert status("evil.example", at) == 400
    with running(replace(ALONE, allowed_hosts=("",))) as server, client(server) as at:
        assert at.get("/v1/models", headers={"Host": ""}).status_code == 400
    with running(replace(ALONE, allowed_hosts=("*",))) as server, client(server) as at:
        answer = at.get("/v1/models/", headers={"Host": "evil.example"})
        assert answer.status_code == 404  # no redirect, which would contain the name
        assert "evil" not in answer.text
    # `--host '*'` listens on all addresses; it is not `--allowed-host '*'`.
    with running(replace(ALONE, host="*")) as server:
        address = f"http://127.0.0.1:{server.url.rpartition(':')[2]}"
        with httpx.Client(base_url=address, timeout=30) as local:
            assert status("localhost", local) == 200
            assert status("evil.example", local) == 400


def test_cors_is_off_by_default(http: httpx.Client) -> None:
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


def test_page_serves_only_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
                    f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
                )
                answered = closed(sock)
            status = int(answered.split()[1])
            assert status in (404, 307, 400), path
            assert b"secret\n" not in answered
            assert b"root:" not in answered
        assert http.post("/index.html").status_code == 405
        assert http.put("/new.txt", content=b"x").status_code == 405
        assert not (static / "new.txt").exists()
