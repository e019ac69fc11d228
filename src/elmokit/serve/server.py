"""The server process: address, event loop, signals, and graceful shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType

from elmokit.errors import ConfigError, optional_imports
from elmokit.serve.settings import Settings

with optional_imports("serve", "elmo serve"):
    import uvicorn

    from elmokit.serve.app import create_app
    from elmokit.serve.protocol import HeaderTimeoutProtocol
    from elmokit.serve.service import Service

#: Seconds that an idle connection is kept open; proxies keep theirs open for a minute.
_KEEP_ALIVE = 75
#: Connections that the event loop accepts at once, before it can close any of them.
_BACKLOG = 256
#: File descriptors for everything except connections: models, sockets, threads.
_OTHER_FILES = 128


class Server:
    """A service that listens on an address.

    Args:
        settings: The settings.
        ready: Called with the server when the models are loaded.

    Attributes:
        service: The service.
        url: Its address.
        signal: The signal that stopped it, if there was one.
    """

    def __init__(
        self, settings: Settings, ready: Callable[[Server], None] = lambda _: None
    ) -> None:
        self.service = Service(settings)
        self.signal: int | None = None
        self._ready = ready
        self._socket = _bind(settings.host, settings.port)
        host, port = self._socket.getsockname()[:2]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._uvicorn = uvicorn.Server(
            uvicorn.Config(
                create_app(self.service),
                http=HeaderTimeoutProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                backlog=_BACKLOG,
                limit_concurrency=1 + _allowed_connections(settings.limits.connections),
                timeout_keep_alive=_KEEP_ALIVE,
                timeout_graceful_shutdown=int(2 * settings.limits.timeout) + 5,
            )
        )
        # uvicorn's handlers raise the signal again after the shutdown; see `_signals`.
        self._uvicorn.capture_signals = contextlib.nullcontext  # type: ignore

    def run(self) -> None:
        """Serve until a signal arrives or `stop` is called.

        Raises:
            ElmoError: A model, task model or index could not be loaded.
        """
        with self._signals():
            asyncio.run(self._serve())
        if self.service.failure is not None:
            raise self.service.failure

    def stop(self) -> None:
        """Answer pending requests and stop; the second call stops immediately."""
        self._uvicorn.force_exit = self._uvicorn.should_exit
        self._uvicorn.should_exit = True
        self.service.stop()

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        self.service.start(lambda: loop.call_soon_threadsafe(self._loaded))
        try:
            await self._uvicorn.serve(sockets=[self._socket])
        finally:
            self._socket.close()
            await asyncio.to_thread(self.service.close)

    def _loaded(self) -> None:
        if self.service.failure is not None:
            self.stop()
        else:
            self._ready(self)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Stop on SIGINT, SIGTERM and SIGHUP, except signals that are ignored (nohup)."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, _: FrameType | None) -> None:
            self.signal = number
            self.stop()

        with contextlib.ExitStack() as restore:
            for name in ("SIGINT", "SIGTERM", "SIGHUP"):
                number = getattr(signal, name, None)  # Windows has no SIGHUP
                if number is not None and signal.getsignal(number) is not signal.SIG_IGN:
                    restore.callback(signal.signal, number, signal.signal(number, handle))
            yield


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"Cannot listen on the address '{host}': {error}.") from error
    try:
        if sys.platform != "win32":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"is not available ({error})"
        raise ConfigError(
            f"Port {port} of {host} {reason}. Choose another port with --port; 0 selects a free "
            "one."
        ) from error
    return sock


def _allowed_connections(limit: int) -> int:
    """Raise the limit of open files for this many connections; return how many it allows."""
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
