"""A local HTTP server that misbehaves on request."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CONTENT = random.Random(0).randbytes(300_000)


class Server(ThreadingHTTPServer):
    """Serves `files`. `plan` has the behavior of the next answers; after that, `usual` applies."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {"/w.hdf5": CONTENT}
        self.plan: list[Answer] = []
        self.usual: Answer = serve
        self.requests: list[dict[str, str]] = []
        self.sent = 0
        self.ending = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def ranges(self) -> list[str | None]:
        """Return the range of the file that each request asked for."""
        return [request.get("Range") for request in self.requests]

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect, which is part of the tests."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(dict(self.headers.items()))
        answer = self.server.plan.pop(0) if self.server.plan else self.server.usual
        answer(self)
        self.close_connection = True

    def log_message(self, *_: Any) -> None:
        """Do not log requests."""

    def write(self, data: bytes) -> None:
        self.server.sent += len(data)  # first: the client may finish before this thread continues
        self.wfile.write(data)


Answer = Callable[[_Handler], None]


@contextmanager
def running() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.ending.set()
        server.shutdown()
        server.server_close()


def etag_of(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'


def answer(
    *,
    ranges: bool = True,
    if_range: bool = True,
    etag: bool = True,
    modified: str | None = None,
    length: bool = True,
    chunked: bool = False,
    stop_after: int | None = None,
    stall_after: int | None = None,
    pace: float = 0.0,
    content: bytes | None = None,
) -> Answer:
    """Describe an answer.

    Args:
        ranges: Support range requests.
        if_range: Support If-Range: send a range only if the version matches.
        etag: Send an ETag.
        modified: Value of Last-Modified.
        length: Send Content-Length.
        chunked: Use chunked encoding.
        stop_after: Close the connection after this many bytes.
        stall_after: Stop sending after this many bytes, but keep the connection open.
        pace: Seconds between pieces of 64 kB.
        content: Content to send instead of the file of that URL.
    """

    def give(handler: _Handler) -> None:
        body = handler.server.files.get(handler.path) if content is None else content
        if body is None:
            return handler.send_error(404)
        version = etag_of(body) if etag else None
        condition = handler.headers.get("If-Range")
        same = not if_range or condition is None or condition in (version, modified)
        start = _start(handler, len(body)) if ranges and same else 0
        if start is None:
            return None
        if start == 0:
            handler.send_response(200)
        for name, value in (("ETag", version), ("Last-Modified", modified)):
            if value is not None:
                handler.send_header(name, value)
        if chunked:
            handler.send_header("Transfer-Encoding", "chunked")
        elif length:
            handler.send_header("Content-Length", str(len(body) - start))
        handler.end_headers()
        _send(handler, body[start:], stop_after, stall_after, chunked=chunked, pace=pace)

    return give


def _start(handler: _Handler, size: int) -> int | None:
    """Start to answer a range request; return None if the range is invalid."""
    asked = handler.headers.get("Range")
    if asked is None:
        return 0
    start = int(asked.removeprefix("bytes=").rstrip("-"))
    if start >= size:
        handler.send_response(416)
        handler.send_header("Content-Range", f"bytes */{size}")
        handler.end_headers()
        return None
    handler.send_response(206)
    handler.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
    return start


def _send(
    handler: _Handler,
    body: bytes,
    stop: int | None,
    stall: int | None,
    *,
    chunked: bool,
    pace: float,
) -> None:
    cuts = [cut for cut in (stop, stall) if cut is not None]
    sent = body[: min(cuts)] if cuts else body
    for at in range(0, len(sent), 1 << 16):
        piece = sent[at : at + (1 << 16)]
        handler.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
        time.sleep(pace)
    if chunked and not cuts:
        handler.write(b"0\r\n\r\n")
    if stall is not None:
        handler.wfile.flush()
        handler.server.ending.wait(60)


serve = answer()


def status(code: int) -> Answer:
    """Answer with an error."""
    return lambda handler: handler.send_error(code)


def hang_up(handler: _Handler) -> None:
    """Close the connection without an answer."""
