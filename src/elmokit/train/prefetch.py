"""Build batches in a second thread, each with the position to resume from."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.data.streams import Streams
from elmokit.train.batches import Batch, make_batch

_AHEAD = 6

#: A batch, and the position of the streams after it.
Item = tuple[Batch, dict[str, Any]]


class Prefetch:
    """An endless iterator over batches, each with the position of the streams after it.

    A checkpoint with the position of the last batch *used* loses nothing of what was built ahead.
    """

    def __init__(self, streams: Streams, columns: NDArray[np.uint8], n_words: int) -> None:
        self._streams, self._columns, self._n_words = streams, columns, n_words
        self._thread = ThreadPoolExecutor(1, "elmokit-batches")
        self._pending: deque[Future[Item]] = deque()
        for _ in range(_AHEAD):
            self._submit()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        self._submit()
        return self._pending.popleft().result()

    def close(self) -> None:
        """Stop the thread."""
        self._thread.shutdown(cancel_futures=True)

    def _submit(self) -> None:
        self._pending.append(self._thread.submit(self._build))

    def _build(self) -> Item:
        batch = make_batch(next(self._streams), self._columns, self._n_words)
        return batch, self._streams.position()
