"""What every request passes before and after its route.

A body is read whole, within a size and a time; a client that leaves takes its work with it; an
answer is sent in pieces, and a client that does not take them is cut off; whatever goes wrong is
JSON. It stands outside FastAPI, so that none of this can be forgotten in a route.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmokit.serve.refusals import Refusal, failure
from elmokit.serve.service import Service

#: Bytes of an answer that are sent at once; the next piece waits until there is room.
_PIECE = 256 * 1024
#: Bytes a second that a client should take of a large answer at least.
_SLOWEST = 100_000
# Bodies of the largest size that are held at once.
_BODIES = 32
# What is read and thrown away of a body that is too large, so that its client reads the answer.
_DRAINED_BYTES = 64 * 2**20
_DRAINED_SECONDS = 5.0

_PAGE_HEADERS = (
    # The page takes nothing from elsewhere and is shown nowhere else.
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)


class ClientGoneError(Exception):
    """The client has left."""


class Guard:
    """The outermost part of the application.

    Args:
        app: What is inside.
        service: Whose limits count.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        token = service.settings.token
        self._token = None if token is None else f"Bearer {token}".encode()
        self._bodies = _Bodies(_BODIES * service.limits.body)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        answer = _Answer(scope, send, self._service.limits.timeout)
        try:
            await self._answer(scope, receive, answer)
        except Refusal as refusal:
            await answer.refuse(refusal)
        except ClientGoneError:
            self._service.metrics.count("elmo_disconnects_total")
            answer.status = 499
        except Exception as error:
            self._service.metrics.failed(error)
            await answer.refuse(failure())
        finally:
            seconds = time.perf_counter() - begin
            self._service.metrics.request(_route(scope), answer.status, seconds)

    async def _answer(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        path: str = scope["path"]
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if is_api(path):
            self._service.check_open()
            self._authorise(headers)
        with self._bodies.one() as held:
            body = await self._body(scope, headers, receive, held)
            await _run(self._app, scope, body, receive, answer)

    def _authorise(self, headers: dict[bytes, bytes]) -> None:
        if self._token is None:
            return
        given = headers.get(b"authorization", b"")
        if secrets.compare_digest(given, self._token):
            return
        self._service.metrics.count("elmo_refused_total", reason="token")
        found = "no Authorization header" if not given else "another token"
        raise Refusal(
            401,
            f"Found {found}; expected 'Authorization: Bearer TOKEN' with the token that the "
            "service was started with.",
            headers={"WWW-Authenticate": "Bearer"},
        )

    async def _body(
        self, scope: Scope, headers: dict[bytes, bytes], receive: Receive, held: _Body
    ) -> bytes:
        """Read a body, if it is not too large and comes in time."""
        if scope["method"] in ("GET", "HEAD", "OPTIONS") and b"content-length" not in headers:
            return b""
        limit, timeout = self._service.limits.body, self._service.limits.timeout
        told = headers.get(b"content-length", b"")
        length = int(told) if told.isdigit() else 0
        pieces: list[bytes] = []
        more = True
        try:
            async with asyncio.timeout(timeout):
                while more and length <= limit and held.size <= limit:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError
                    pieces.append(message.get("body", b""))
                    held.add(len(pieces[-1]))
                    more = message.get("more_body", False)
        except TimeoutError:
            self._service.metrics.count("elmo_refused_total", reason="slow")
            raise Refusal(
                408,
                f"The body was not here after {timeout:g} seconds (--timeout), found {held.size:,} "
                "bytes of it.",
                headers={"Connection": "close"},
            ) from None
        if length <= limit and held.size <= limit:
            return b"".join(pieces)
        if more:
            await _drain(receive)
        self._service.metrics.count("elmo_refused_total", reason="body")
        raise Refusal.limit(
            "max_body", limit, max(length, held.size), "bytes", "Send less text at once.", 413
        )


class _Bodies:
    """The bytes of all bodies that are held at once, which are bounded."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = 0

    @contextmanager
    def one(self) -> Iterator[_Body]:
        """Count one of them as long as it is held."""
        body = _Body(self)
        try:
            yield body
        finally:
            self.size -= body.size


class _Body:
    """The bytes of one body."""

    def __init__(self, all_: _Bodies) -> None:
        self._all = all_
        self.size = 0

    def add(self, n: int) -> None:
        """Take some more, or refuse them."""
        self.size += n
        self._all.size += n
        if self._all.size > self._all.most:
            raise Refusal(
                429,
                f"The bodies of all requests at once are more than {self._all.most:,} bytes. Come "
                "again in a second.",
                headers={"Retry-After": "1", "Connection": "close"},
            )


class _Answer:
    """Sends an answer, and knows how far it is.

    Attributes:
        status: Its status.
        begun: Whether its head is sent.
        done: Whether all of it is.
    """

    def __init__(self, scope: Scope, send: Send, timeout: float) -> None:
        self._send, self._timeout = send, timeout
        self._is_page = not is_api(scope["path"])
        self._abort: Callable[[], None] | None = scope.get("state", {}).get("abort")
        self.status = 500
        self.begun = self.done = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun, self.status = True, message["status"]
            headers = [*message.get("headers", ()), (b"x-content-type-options", b"nosniff")]
            message = {**message, "headers": headers}
            if self._is_page:
                headers += _PAGE_HEADERS
        body = message.get("body", b"")
        try:
            async with asyncio.timeout(self._timeout + len(body) / _SLOWEST):
                await self._pieces(message, body)
        except TimeoutError:
            if self._abort is not None:
                self._abort()  # closing would wait for what nobody takes
            raise ClientGoneError from None
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.done = True

    async def _pieces(self, message: Message, body: bytes) -> None:
        if len(body) <= _PIECE:
            await self._send(message)
            return
        more = message.get("more_body", False)
        view = memoryview(body)
        for first in range(0, len(body), _PIECE):
            last = first + _PIECE >= len(body)
            piece = bytes(view[first : first + _PIECE])
            await self._send({**message, "body": piece, "more_body": more or not last})

    async def refuse(self, refusal: Refusal) -> None:
        """Send an error, if nothing else was sent; break off an answer that is half sent."""
        if self.begun:
            if self._abort is not None and not self.done:
                self._abort()
            return
        body = refusal.body()
        headers = {
            "content-type": "application/json",
            "content-length": str(len(body)),
            **refusal.headers,
        }
        try:
            await self(
                {
                    "type": "http.response.start",
                    "status": refusal.status,
                    "headers": [(k.lower().encode(), v.encode()) for k, v in headers.items()],
                }
            )
            await self({"type": "http.response.body", "body": body})
        except ClientGoneError:
            return


async def _run(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, answer: _Answer) -> None:
    """Run the application on a body, and end it when the client leaves."""
    gone = asyncio.Event()
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        if waiting:
            return waiting.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    work = asyncio.ensure_future(app(scope, replay, answer))
    watcher = asyncio.ensure_future(watch())
    try:
        await asyncio.wait({work, watcher}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and not answer.done:
            work.cancel()
            await asyncio.wait({work})
            if work.cancelled():
                raise ClientGoneError
        await work
    finally:
        gone.set()
        work.cancel()
        watcher.cancel()


async def _drain(receive: Receive) -> None:
    size = 0
    try:
        async with asyncio.timeout(_DRAINED_SECONDS):
            while size < _DRAINED_BYTES:
                message = await receive()
                if not message.get("more_body", False):
                    return
                size += len(message.get("body", b""))
    except TimeoutError:
        return


def is_api(path: str) -> bool:
    """Tell whether a path is one that a token guards; the page and the probes are open."""
    return path.startswith("/v1/") or path in ("/metrics", "/openapi.json")


def _route(scope: Scope) -> str:
    """Name the route of a request by its template: paths of clients must not become labels."""
    route: Any = scope.get("route")
    path = getattr(route, "path", None)
    if isinstance(path, str) and path:
        return path
    return "other" if is_api(scope["path"]) else "page"
