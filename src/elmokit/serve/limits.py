"""Limits on a request, on the queue, and on the memory of all requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from elmokit.serve.errors import RequestRejected
from elmokit.settings import Count, Positive, Settings

#: Tokens of one similarity matrix, which grows with the square.
MATRIX_TOKENS = 256
#: Uses of a word on one plane.
POINTS = 512
#: Positions to predict words for: each costs a full softmax.
PLACES = 128
#: Words or neighbors in a list.
LISTED = 100
#: Queries of neighbors: each is compared with every token of the index.
QUERIES = 16

# Maximum number of bodies and responses of the largest size in memory at the same time.
_BODIES = 32
_ANSWERS = 4


class Limits(Settings):
    """The limits that `elmo serve` has options for.

    Attributes:
        body: Bytes of a request.
        tokens: Tokens in the sentences of a request.
        sentences: Sentences of a request.
        answer: Values in the vectors of a response.
        queue: Pending requests; more are rejected.
        connections: Open connections; idle ones are closed to accept new ones.
        timeout: Seconds to receive a request, to compute the response, and to send it.
    """

    body: Count = 2 * 2**20
    tokens: Count = 4096
    sentences: Count = 256
    answer: Count = 2**24
    queue: Count = 256
    connections: Count = 1024
    timeout: Positive = 60.0


class MemoryBudget:
    """The memory of all requests together.

    A byte of a body and a value of a response count the same: as Python objects, or as an array
    and JSON, each takes about 16 bytes.
    """

    def __init__(self, limits: Limits) -> None:
        self._total = max(_BODIES * limits.body, _ANSWERS * limits.answer)
        self._used = 0

    @contextmanager
    def request(self) -> Iterator[Callable[[int], None]]:
        """Yield a function that reserves memory until the end of the block.

        A block lasts until the response is sent, so clients that read slowly cannot fill the
        memory.
        """
        reserved = 0

        def reserve(size: int) -> None:
            nonlocal reserved
            if self._used + size > self._total:
                raise RequestRejected.retry(
                    429, "The memory limit for requests in progress is reached.", 1, close=True
                )
            self._used += size
            reserved += size

        try:
            yield reserve
        finally:
            self._used -= reserved
