"""ASGI middleware that handles every request before FastAPI does.

It checks the Host header and the token, reads the body with a size limit and a timeout, cancels the
requests of clients that disconnect, sends responses in chunks, disconnects clients that read too
slowly, and returns all errors as JSON.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import re
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from elmokit.progress import plural
from elmokit.serve.errors import RequestRejected, check_limit, internal_error
from elmokit.serve.service import Service

#: The memory limit allows this many request bodies or responses of maximum size at the same time.
_MAX_BODIES = 32
_MAX_RESPONSES = 4
#: Size of the chunks of a response in bytes. A chunk is sent when the write buffer has space.
_CHUNK_SIZE = 256 * 1024
#: Minimum speed of a client that reads a large response, in bytes per second.
_MIN_SPEED = 100_000
#: Maximum number of bytes to read and discard from a rejected body. Some clients read the response
#: only after they have sent the entire body.
_MAX_DISCARDED = 64 * 2**20

_NOSNIFF = (b"x-content-type-options", b"nosniff")
_PAGE_HEADERS = (
    # The page cannot load anything from other hosts, and other pages cannot embed it in a frame.
    (
        b"content-security-policy",
        b"default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
)

# A host name, an IPv4 address or a bracketed IPv6 address, optionally followed by a port.
_HOST = re.compile(r"([^:\[\]]+|\[[^\[\]]+\])(?::[0-9]*)?")

_log = logging.getLogger(__name__)


class ServiceMiddleware:
    """The outermost middleware.

    Args:
        app: The application.
        service: The service, for its settings, limits and metrics.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        token = service.settings.token
        self._token = None if token is None else f"Bearer {token}".encode()
        self._hosts = {host.lower() for host in service.settings.allowed_hosts}
        self._any_host = "*" in self._hosts  # "*" has no special meaning in --host
        self._hosts |= {"localhost", service.settings.host.lower(), socket.gethostname().lower()}
        limits = service.limits
        # Body bytes and response values share one limit, because each of them needs about 16 bytes
        # of memory: a body byte as Python objects, a response value as an array element and JSON.
        self._free_memory = max(_MAX_BODIES * limits.body, _MAX_RESPONSES * limits.values)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        start = time.perf_counter()
        metrics = self._service.metrics
        sender = _ResponseSender(scope, send, self._service)
        reserved = 0

        def reserve_memory(size: int) -> None:
            """Reserve memory until the response has been sent."""
            nonlocal reserved
            if size > self._free_memory:
                message = "The service has reached its memory limit for pending requests."
                raise RequestRejected(message, 429, retry_after=1)
            self._free_memory -= size
            reserved += size

        scope["state"]["reserve_memory"] = reserve_memory
        try:
            await self._handle(scope, receive, sender)
        except RequestRejected as error:
            await sender.send_error(error, receive)
        except ClientDisconnect:
            sender.status = 499  # as in the logs of nginx
        except Exception as error:
            _log.error("Internal server error", exc_info=error)
            await sender.send_error(internal_error(), receive)
        finally:
            self._free_memory += reserved
            route = _route_label(scope)
            metrics.requests.labels(route, str(sender.status)).inc()
            metrics.request_seconds.labels(route).observe(time.perf_counter() - start)

    async def _handle(self, scope: Scope, receive: Receive, sender: _ResponseSender) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        self._check_host(headers.get(b"host", b"").decode("latin-1"))
        if is_api(scope["path"]):
            if self._service.shutdown:
                raise RequestRejected("The service is shutting down.", 503, retry_after=5)
            self._check_token(headers.get(b"authorization", b""))
        body = await self._read_body(headers, receive, scope["state"]["reserve_memory"])
        await _run_app(self._app, scope, body, receive, sender)

    def _check_host(self, host: str) -> None:
        """Reject unknown host names, to prevent DNS rebinding attacks."""
        if self._any_host:
            return
        if match := _HOST.fullmatch(host):
            name = match[1].lower()
            with suppress(ValueError):
                if name in self._hosts or ipaddress.ip_address(name.strip("[]")):
                    return
        raise RequestRejected(
            f"Invalid Host header '{host:.100}'. Expected an IP address, 'localhost', or a name "
            "set with --allowed-host.",
            400,
        )

    def _check_token(self, header: bytes) -> None:
        if self._token is None or secrets.compare_digest(header, self._token):
            return
        raise RequestRejected(
            f"{'Invalid token' if header else 'Missing Authorization header'}. Expected "
            "'Authorization: Bearer TOKEN' with the token of the service.",
            401,
            headers={"WWW-Authenticate": "Bearer"},
        )

    async def _read_body(
        self, headers: dict[bytes, bytes], receive: Receive, reserve_memory: Callable[[int], None]
    ) -> bytes:
        """Read a body. Reject it if it is too large or arrives too slowly."""
        if b"content-length" in headers and b"transfer-encoding" in headers:
            # Proxies can disagree about which header applies. This allows request smuggling.
            raise RequestRejected(
                "The request has both Content-Length and Transfer-Encoding. Send only one of them.",
                400,
                headers={"Connection": "close"},
            )
        encoding = headers.get(b"content-encoding", b"identity").decode("latin-1").lower()
        if encoding != "identity":
            raise RequestRejected(
                f"Unsupported Content-Encoding '{encoding:.80}'. Send the body uncompressed.", 415
            )
        limit, timeout = self._service.limits.body, self._service.limits.timeout
        size = length = int(headers.get(b"content-length", b"0"))
        if b"expect" in headers:  # the client waits for a response before it sends the body
            check_limit("max_body", limit, size, "bytes", 413)
        chunks: list[bytes] = []
        received = 0
        has_more = length > 0 or b"transfer-encoding" in headers
        try:
            async with asyncio.timeout(timeout):
                while has_more and received <= _MAX_DISCARDED:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientDisconnect
                    chunk = message.get("body", b"")
                    received += len(chunk)
                    size = max(length, received)
                    if size <= limit:
                        reserve_memory(len(chunk))
                        chunks.append(chunk)
                    has_more = message.get("more_body", False)
        except TimeoutError:
            if size <= limit:
                raise RequestRejected(
                    f"The request body is incomplete: received {plural(received, 'byte')} within "
                    f"{timeout:g} seconds (--timeout).",
                    408,
                    headers={"Connection": "close"},
                ) from None
        check_limit("max_body", limit, size, "bytes", 413)
        return b"".join(chunks)


class _ResponseSender:
    """Sends a response.

    Attributes:
        status: The status of the response.
        started: Whether the headers have been sent.
        finished: Whether the response has been sent completely.
    """

    def __init__(self, scope: Scope, send: Send, service: Service) -> None:
        self._scope, self._send, self._timeout = scope, send, service.limits.timeout
        self._headers = [_NOSNIFF, *(() if is_api(scope["path"]) else _PAGE_HEADERS)]
        # During the shutdown, uvicorn might not close connections that it has just accepted. After
        # an error, a client that expects "100 Continue" might omit the body, and the next request
        # would be mistaken for the body.
        if service.shutdown or b"expect" in dict(scope["headers"]):
            self._headers.append((b"connection", b"close"))
        self._abort: Callable[[], None] = scope["state"]["abort"]
        self.status = 500
        self.started = self.finished = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            message = {**message, "headers": [*message.get("headers", ()), *self._headers]}
        body = message.get("body", b"")
        try:
            async with asyncio.timeout(self._timeout + len(body) / _MIN_SPEED):
                await self._send_chunks(message, body)
        except TimeoutError:
            # A graceful close would wait until the client has read the response.
            self._abort()
            raise ClientDisconnect from None
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            self.finished = True

    async def _send_chunks(self, message: Message, body: bytes) -> None:
        view = memoryview(body)
        while view:
            await self._send({**message, "body": bytes(view[:_CHUNK_SIZE]), "more_body": True})
            await asyncio.sleep(0)  # lets the event loop detect a closed connection
            view = view[_CHUNK_SIZE:]
        await self._send({**message, "body": b""})  # waits until the last chunk has been sent

    async def send_error(self, error: RequestRejected, receive: Receive) -> None:
        """Send an error response, or abort a partially sent response."""
        if self.started:
            if not self.finished:
                self._abort()
            return
        with suppress(ClientDisconnect):
            await error.response()(self._scope, receive, self)


async def _run_app(
    app: ASGIApp, scope: Scope, body: bytes, receive: Receive, sender: _ResponseSender
) -> None:
    """Run the application. Cancel it if the client disconnects."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay_body() -> Message:
        if not messages:
            await asyncio.Event().wait()  # forever; the other task detects disconnects
        return messages.pop()

    async def wait_for_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    response = asyncio.ensure_future(app(scope, replay_body, sender))
    disconnect = asyncio.ensure_future(wait_for_disconnect())
    try:
        await asyncio.wait({response, disconnect}, return_when=asyncio.FIRST_COMPLETED)
        if not response.done() and not sender.finished:
            response.cancel()
            await asyncio.wait({response})
            raise ClientDisconnect
        await response
    finally:
        response.cancel()
        disconnect.cancel()


def is_api(path: str) -> bool:
    """Return whether a path belongs to the API, which requires the token."""
    # The regular expressions of routes also match paths that end with a newline (%0A).
    return path.startswith("/v1/") or path.rstrip("\n") in ("/metrics", "/openapi.json")


def _route_label(scope: Scope) -> str:
    """Return the path template of the route or a generic label, to bound the number of labels."""
    template: str | None = getattr(scope.get("route"), "path", None)
    return template or ("other" if is_api(scope["path"]) else "page")
