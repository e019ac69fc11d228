"""HTTP connections with a timeout for request headers and a limit on their number.

uvicorn waits for the header of a request without a timeout, and accepts connections until the
process runs out of file descriptors.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds for the header of a request, from its first byte or from the start of a connection.
HEADER_SECONDS = 15.0


class HeaderTimeoutProtocol(H11Protocol):
    """Closes connections with late headers, and idle ones if there are too many."""

    _deadline: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def connection_made(self, transport: Any) -> None:
        """Wait for a request; at the limit, close the connection that has been idle longest."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort": transport.abort}
        self._idle_since = self.loop.time()
        self._start_timer()
        assert self.limit_concurrency is not None
        if len(self.connections) >= self.limit_concurrency:
            idle = (c for c in self.connections if isinstance(c, HeaderTimeoutProtocol) and c.idle)
            oldest = min(idle, key=lambda connection: connection._idle_since)
            # Before the transport closes it, because the next connection counts them again.
            self.connections.discard(oldest)
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Receive bytes; if they are part of a header, the rest must arrive in time."""
        super().data_received(data)
        if self.idle:
            self._start_timer()
        else:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request; uvicorn closes idle connections."""
        self._stop_timer()
        self._idle_since = self.loop.time()
        super().on_response_complete()

    @property
    def idle(self) -> bool:
        """Whether no request is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def _start_timer(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEADER_SECONDS, self._time_out)

    def _stop_timer(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _time_out(self) -> None:
        self._deadline = None
        if self.idle:
            self.transport.abort()
