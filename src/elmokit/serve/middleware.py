"""ASGI middleware that handles every request before FastAPI does.

It checks the Host and the token, reads the body with a size limit and a timeout, cancels the work
of clients that disconnect, sends the response in chunks, disconnects clients that do not read
them, and returns every error as JSON.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmokit.serve.errors import RequestRejected, check_limit, internal_error, shutting_down
from elmokit.serve.limits import MemoryBudget
from elmokit.serve.service import Service

#: Bytes of a response to send at once; the next chunk waits until the buffer has space.
_CHUNK = 256 * 1024
#: Minimum speed of a client that reads a large response, in bytes per second.
_SLOWEST = 100_000
#: Bytes of a rejected body to read and discard, so that the client reads the error.
_DRAINED = 64 * 2**20

_NOSNIFF = (b"x-content-type-options", b"nosniff")
_PAGE_HEADERS = (
    # The page loads nothing from other hosts and cannot be framed.
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)


_log = logging.getLogger(__name__)


class ClientDisconnected(Exception):
    """The client closed its connection, or was too slow."""


class ServiceMiddleware:
    """The outermost middleware.

    Args:
        app: The application.
        service: The service, for its settings and limits.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        token = service.settings.token
        self._token = None if token is None else f"Bearer {token}".encode()
        self._hosts = {host.lower() for host in service.settings.allowed_hosts}
        self._hosts |= {"localhost", service.settings.host.lower(), socket.gethostname().lower()}
        self._memory = MemoryBudget(service.limits)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()
        metrics = self._service.metrics
        timeout, closing = self._service.limits.timeout, self._service.shutdown
        sender = _Sender(scope, send, timeout, closing=closing)
        try:
            with self._memory.request() as reserve_memory:
                scope.setdefault("state", {})["reserve_memory"] = reserve_memory
                await self._handle(scope, receive, sender)
        except RequestRejected as error:
            await sender.send_error(error, receive)
        except ClientDisconnected:
            sender.status = 499  # as nginx logs it
        except Exception as error:
            _log.error("Internal server error", exc_info=error)
            await sender.send_error(internal_error(), receive)
        finally:
            route = _route(scope)
            metrics.requests.labels(route, str(sender.status)).inc()
            metrics.request_seconds.labels(route).observe(time.perf_counter() - begin)

    async def _handle(self, scope: Scope, receive: Receive, sender: _Sender) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        if is_api(scope["path"]):
            if self._service.shutdown:
                raise shutting_down()
            self._check_token(headers.get(b"authorization", b""))
        body = await self._read_body(headers, receive, scope["state"]["reserve_memory"])
        await _run(self._app, scope, body, receive, sender)

    def _check_host(self, host: str) -> None:
        """Reject unknown host names, which protects against DNS rebinding."""
        if "*" in self._hosts:
            return
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            name = None
        if name is not None and (name in self._hosts or _is_address(name)):
            return
        raise RequestRejected(
            400,
            f"Invalid Host '{host:.100}'. Expected an IP address, 'localhost', or a name that was "
            "set with --allowed-host.",
        )

    def _check_token(self, header: bytes) -> None:
        if self._token is None or secrets.compare_digest(header, self._token):
            return
        raise RequestRejected(
            401,
            f"{'Invalid token' if header else 'Missing Authorization header'}. Expected "
            "'Authorization: Bearer TOKEN' with the token of the service.",
            headers={"WWW-Authenticate": "Bearer"},
        )

    async def _read_body(
        self, headers: dict[bytes, bytes], receive: Receive, reserve_memory: Callable[[int], None]
    ) -> bytes:
        """Read a body; reject one that is too large or arrives too slowly."""
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # Proxies disagree on which of the two applies, and so on where a request ends.
            raise RequestRejected(
                400,
                "The request has both Content-Length and Transfer-Encoding. Send only one of them.",
                headers={"Connection": "close"},
            )
        limit, timeout = self._service.limits.body, self._service.limits.timeout
        size = length = int(headers.get(b"content-length", b"0"))
        chunks: list[bytes] = []
        received = 0
        more = length > 0 or b"transfer-encoding" in headers
        try:
            async with asyncio.timeout(timeout):
                while more and received <= _DRAINED:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnected
                    chunk = message.get("body", b"")
                    received += len(chunk)
                    size = max(length, received)
                    if size <= limit:
                        reserve_memory(len(chunk))
                        chunks.append(chunk)
                    more = message.get("more_body", False)
        except TimeoutError:
            if size <= limit:
                raise RequestRejected(
                    408,
                    f"The request body is incomplete: received {received:,} bytes within "
                    f"{timeout:g} seconds (--timeout).",
                    headers={"Connection": "close"},
                ) from None
        check_limit("max_body", limit, size, "bytes", 413)
        return b"".join(chunks)


class _Sender:
    """Sends a response.

    Attributes:
        status: Its status.
        begun: Whether its headers have been sent.
        done: Whether it has been sent completely.
    """

    def __init__(self, scope: Scope, send: Send, timeout: float, *, closing: bool) -> None:
        self._scope, self._send, self._timeout = scope, send, timeout
        self._headers = [_NOSNIFF, *(() if is_api(scope["path"]) else _PAGE_HEADERS)]
        if closing:  # uvicorn may miss a connection accepted while it was starting to shut down
            self._headers.append((b"connection", b"close"))
        self._abort: Callable[[], None] = scope.get("state", {}).get("abort", lambda: None)
        self.status = 500
        self.begun = self.done = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun, self.status = True, message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
        body = message.get("body", b"")
        try:
            async with asyncio.timeout(self._timeout + len(body) / _SLOWEST):
                await self._send_chunks(message, body)
        except TimeoutError:
            self._abort()  # closing would wait for the client to read the rest
            raise ClientDisconnected from None
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.done = True

    async def _send_chunks(self, message: Message, body: bytes) -> None:
        view = memoryview(body)
        while len(view) > _CHUNK:
            await self._send({**message, "body": bytes(view[:_CHUNK]), "more_body": True})
            await asyncio.sleep(0)  # so that a closed connection is noticed
            view = view[_CHUNK:]
        await self._send({**message, "body": bytes(view)} if body else message)

    async def send_error(self, error: RequestRejected, receive: Receive) -> None:
        """Send an error, or abort a partially sent response."""
        if self.begun:
            if not self.done:
                self._abort()
            return
        with suppress(ClientDisconnected):
            await error.response()(self._scope, receive, self)


async def _run(app: ASGIApp, scope: Scope, body: bytes, receive: Receive, sender: _Sender) -> None:
    """Run the application, and cancel it if the client disconnects."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        if not messages:
            await asyncio.Event().wait()  # `watch` notices a disconnect
        return messages.pop()

    async def disconnected() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    work = asyncio.ensure_future(app(scope, replay, sender))
    watch = asyncio.ensure_future(disconnected())
    try:
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done() and not sender.done:
            work.cancel()
            await asyncio.wait({work})
            raise ClientDisconnected
        await work
    finally:
        work.cancel()
        watch.cancel()


def is_api(path: str) -> bool:
    """Return whether a path requires the token; the page and the probes do not."""
    return path.startswith("/v1/") or path in ("/metrics", "/openapi.json")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _route(scope: Scope) -> str:
    """Return the template of a route, because client paths must not become metric labels."""
    route: Any = scope.get("route")
    path = getattr(route, "path", None)
    if isinstance(path, str) and path:
        return path
    return "other" if is_api(scope["path"]) else "page"
