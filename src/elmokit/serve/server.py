"""The process: an address, a loop, signals, and an end that finishes what was taken."""

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

from elmokit.errors import ConfigError, DependencyError
from elmokit.serve.service import Service
from elmokit.serve.settings import Settings

try:
    import uvicorn

    from elmokit.serve.app import create_app
    from elmokit.serve.protocol import PatientProtocol
except ModuleNotFoundError as error:
    if (error.name or "").startswith("elmokit"):
        raise
    raise DependencyError(str(error.name), "serve", "elmo serve") from None

#: Seconds that a connection without requests is kept; proxies keep theirs for a minute.
_KEPT = 75
_BACKLOG = 1024
_CONNECTIONS = 65536  # files that the process may have open, if the system lets it


class Server:
    """A service with an address.

    Args:
        settings: What to serve.
        ready: Called with the server when the models are loaded.

    Attributes:
        service: The service.
        url: Where it is.
        signal: The signal that ended it, if one did.
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
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                create_app(self.service),
                http=PatientProtocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=_KEPT,
                timeout_graceful_shutdown=int(2 * settings.limits.timeout) + 5,
            )
        )

    def run(self) -> None:
        """Serve until a signal or `stop` ends it.

        Raises:
            ElmoError: What should be served could not be loaded.
        """
        _allow_connections()
        with self._signals():
            asyncio.run(self._serve())
        if self.service.failure is not None:
            raise self.service.failure

    def stop(self) -> None:
        """Take no more requests, finish those that were taken, and end; the second time at once."""
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
        """Let SIGINT and SIGTERM end the server."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(number: int, _: FrameType | None) -> None:
            self.signal = number
            self.stop()

        before = {s: signal.signal(s, end) for s in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Uvicorn(uvicorn.Server):
    """uvicorn, whose signals are ours."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave them alone."""
        yield


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"There is no address '{host}' to listen on: {error}.") from error
    try:
        if sys.platform != "win32":
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(_BACKLOG)
        found.setblocking(False)
    except OSError as error:
        found.close()
        remedy = "Choose another with --port; 0 takes one that is free."
        what = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be had ({error})"
        raise ConfigError(f"Port {port} of {host} {what}. {remedy}") from error
    return found


def _allow_connections() -> None:
    """Let as many clients be connected as the system allows."""
    try:
        import resource  # not on Windows
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _CONNECTIONS if hard == resource.RLIM_INFINITY else min(hard, _CONNECTIONS)
    if soft < wanted:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
