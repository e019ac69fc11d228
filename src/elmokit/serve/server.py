"""The server process: address, connections, event loop, signals, and graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, cast

from elmokit.errors import ConfigError, optional_imports
from elmokit.serve.settings import Settings

with optional_imports("serve", "elmo serve"):
    import h11
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    from elmokit.serve.app import create_app
    from elmokit.serve.service import Service

#: Time limit in seconds for the headers of a request, measured from the first byte of the request
#: or, for the first request of a connection, from the start of the connection.
_HEADER_SECONDS = 15.0
#: Seconds until an idle connection is closed after a response. Longer than one minute, which is the
#: timeout of most proxies.
_KEEP_ALIVE_SECONDS = 75
#: Maximum number of connections that the event loop accepts at once.
_BACKLOG = 256
#: Number of file descriptors that are reserved for everything except connections.
_OTHER_FILES = 128


class Server:
    """A service that listens on an address.

    Args:
        settings: The settings.
        on_ready: Called with the server when the models have been loaded.

    Attributes:
        service: The service.
        url: The URL of the service.
        signal: The signal that stopped the server, if any.
    """

    def __init__(
        self, settings: Settings, on_ready: Callable[[Server], None] = lambda _: None
    ) -> None:
        self.service = Service(settings)
        self.signal: int | None = None
        self._on_ready = on_ready
        self._socket = _bind(settings.host, settings.port)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                create_app(self.service),
                http=_Connection,
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=_BACKLOG,
                limit_concurrency=1 + _allowed_connections(settings.limits.connections),
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=int(2 * settings.limits.timeout) + 5,
            )
        )
        # uvicorn's signal handlers raise the signals again after the shutdown. `_handle_signals`
        # replaces these handlers.
        self._uvicorn.capture_signals = contextlib.nullcontext  # type: ignore

    def run(self) -> None:
        """Serve until a signal arrives or `stop` is called.

        Raises:
            ElmoError: A model, task model or index could not be loaded.
        """
        with self._handle_signals():
            asyncio.run(self._serve())
        if self.service.failure is not None:
            raise self.service.failure

    def stop(self) -> None:
        """Respond to all pending requests and stop."""
        self._uvicorn.should_exit = True
        self.service.shutdown = True

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        self.service.start(lambda: loop.call_soon_threadsafe(self._finish_loading))
        try:
            await self._uvicorn.serve(sockets=[self._socket])
        finally:
            self._socket.close()
            await asyncio.to_thread(self.service.close)

    def _finish_loading(self) -> None:
        if self.service.failure is not None:
            self.stop()
        else:
            self._on_ready(self)

    @contextlib.contextmanager
    def _handle_signals(self) -> Iterator[None]:
        """Stop on SIGINT, SIGTERM or SIGHUP, unless the signal is ignored (as with nohup).

        The first signal restores the default actions, so that a second signal ends the process.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handled: list[int] = []

        def handle(signum: int, _: FrameType | None) -> None:
            for handled_signal in handled:
                signal.signal(handled_signal, signal.SIG_DFL)
            self.signal = signum
            self.stop()

        with contextlib.ExitStack() as restore:
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                signum = getattr(signal, name, None)  # Windows has no SIGHUP
                if signum is not None and signal.getsignal(signum) is not signal.SIG_IGN:
                    handled.append(signum)
                    restore.callback(signal.signal, signum, signal.signal(signum, handle))
            yield


class _Connection(H11Protocol):
    """An HTTP connection that limits the time for headers and the number of connections.

    By default, uvicorn waits for headers without a timeout, and accepts connections until the
    process runs out of file descriptors.
    """

    _timer: asyncio.TimerHandle | None = None
    _last_received = 0.0

    def connection_made(self, transport: Any) -> None:
        """Start the timer. At the limit on connections, close the longest-idle one."""
        super().connection_made(transport)
        # With this limit, a response counts as complete only when the kernel has all of it. Without
        # the limit, a client that does not read the response could keep the connection open forever
        # and delay the shutdown.
        transport.set_write_buffer_limits(high=0)
        self.app_state = {**self.app_state, "abort": transport.abort}
        self._last_received = self.loop.time()
        self._start_timer()
        assert self.limit_concurrency is not None
        if len(self.connections) >= self.limit_concurrency:
            connections = cast("set[_Connection]", self.connections)
            waiting = (c for c in connections if c._is_idle or c.cycle.more_body)
            longest_idle = min(waiting, key=lambda connection: connection._last_received)
            # This connection must not count if it is still open when the next one is made.
            self.connections.discard(longest_idle)
            longest_idle.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Process data. Stop the timer when the headers are complete."""
        self._last_received = self.loop.time()
        super().data_received(data)
        if self._is_idle:
            self._start_timer()
        else:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Reject invalid HTTP. If the response has already started, only close the connection."""
        try:
            super().send_400_response(msg)
        except h11.LocalProtocolError:
            self.transport.abort()

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(_HEADER_SECONDS, self.transport.abort)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        is_dual_stack = family == socket.AF_INET6 and socket.has_dualstack_ipv6()
        return socket.create_server(
            address, family=family, backlog=_BACKLOG, dualstack_ipv6=is_dual_stack
        )
    except OSError as error:
        reason = str(error.strerror).partition(" (")[0]  # omit the address
        raise ConfigError(
            f"Cannot listen on port {port} of '{host}': {reason}. Choose another address with "
            "--host, or another port with --port (0 for a free port)."
        ) from error


def _allowed_connections(limit: int) -> int:
    """Raise the limit on open files, and return the number of connections that it allows."""
    try:
        import resource  # not on Windows
    except ImportError:
        return limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = limit + _BACKLOG + _OTHER_FILES
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(limit, soft - _BACKLOG - _OTHER_FILES))
