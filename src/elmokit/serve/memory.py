"""The memory of all requests together.

A byte of a body and a number of an answer are counted alike: parsed to Python objects, or held as
an array and as JSON, each takes about 16 bytes. A request keeps what it has reserved until its
answer is sent, so clients that read slowly cannot fill the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from elmokit.serve.errors import RequestRejected
from elmokit.serve.limits import Limits

# Bodies and answers of the largest size that are held at once.
_BODIES = 32
_ANSWERS = 4


class MemoryBudget:
    """What all requests may hold at once."""

    def __init__(self, limits: Limits) -> None:
        self.total = max(_BODIES * limits.body, _ANSWERS * limits.answer)
        self.used = 0

    @contextmanager
    def reserve(self) -> Iterator[Reservation]:
        """Return a reservation of nothing yet; the end of the block releases it."""
        reservation = Reservation(self)
        try:
            yield reservation
        finally:
            self.used -= reservation.size


class Reservation:
    """What one request holds."""

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
