"""HTTP connections, with a time limit on the head of a request.

uvicorn waits for the head of a request as long as it takes; a client that sends a byte a minute
would hold its connection for ever.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds for the head of a request, from its first byte, or from the beginning of a connection.
HEAD_SECONDS = 15.0


class PatientProtocol(H11Protocol):
    """Cuts off who does not finish the head of a request."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request."""
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort": transport.abort}
        self._expect()

    def data_received(self, data: bytes) -> None:
        """Take some bytes; if they do not make a request yet, the rest must come soon."""
        super().data_received(data)
        if self._answering():
            self._forget()
        else:
            self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._forget()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Wait for the next request as long as uvicorn keeps connections."""
        self._forget()
        super().on_response_complete()

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _expect(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_late(self) -> None:
        self._deadline = None
        if not self._answering():
            self.transport.abort()
