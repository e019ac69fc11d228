"""Build batches in a second thread, each with the position to resume from."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.data.streams import Streams
from elmokit.train.batches import Batch, make_batch

_AHEAD = 6


class Prefetch:
    """An endless supply of batches.

    Iterating gives pairs: a batch, and the position of the streams after it. A checkpoint that
    keeps the position of the last batch *used* loses nothing of what was made ahead.
    """

    def __init__(self, streams: Streams, columns: NDArray[np.uint8], n_words: int) -> None:
        self._streams, self._columns, self._n_words = streams, columns, n_words
        self._queue: queue.Queue[tuple[Batch, dict[str, Any]] | BaseException] = queue.Queue(_AHEAD)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True, name="elmokit-batches")
        self._thread.start()

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                batch = make_batch(next(self._streams), self._columns, self._n_words)
                self._put((batch, self._streams.position()))
        except BaseException as error:  # raised in the consumer
            self._put(error)

    def _put(self, item: tuple[Batch, dict[str, Any]] | BaseException) -> None:
        while not self._stop.is_set():
            try:
                self._queue.put(item, timeout=0.1)
                return
            except queue.Full:
                continue

    def __iter__(self) -> Iterator[tuple[Batch, dict[str, Any]]]:
        return self

    def __next__(self) -> tuple[Batch, dict[str, Any]]:
        item = self._queue.get()
        if isinstance(item, BaseException):
            raise item
        return item

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join()
