"""A limit on the memory of all requests together.

A byte of a body and a value of a response count the same: as Python objects, or as an array and
JSON, each takes about 16 bytes. A request keeps its reservation until its response is sent, so
clients that read slowly cannot fill the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from elmokit.serve.errors import RequestRejected
from elmokit.serve.limits import Limits

# Maximum number of bodies and responses of the largest size at the same time.
_BODIES = 32
_ANSWERS = 4


class MemoryBudget:
    """The budget of all requests."""

    def __init__(self, limits: Limits) -> None:
        self.total = max(_BODIES * limits.body, _ANSWERS * limits.answer)
        self.used = 0

    @contextmanager
    def reserve(self) -> Iterator[Reservation]:
        """Return an empty reservation, which is released at the end of the block."""
        reservation = Reservation(self)
        try:
            yield reservation
        finally:
            self.used -= reservation.size


class Reservation:
    """The memory of one request."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget = budget
        self.size = 0

    def add(self, size: int) -> None:
        """Reserve more, or reject the request."""
        if self._budget.used + size > self._budget.total:
            raise RequestRejected.retry(
                429, "The memory limit for requests in progress is reached.", 1, close=True
            )
        self._budget.used += size
        self.size += size
