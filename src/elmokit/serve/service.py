"""The service: its models, its threads and its status."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from elmokit.serve.batching import Batcher
from elmokit.serve.errors import RequestRejected
from elmokit.serve.hosted import Hosted, host
from elmokit.serve.metrics import Metrics
from elmokit.serve.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")

# Threads for long work other than computing: tokenizing, writing large responses, searching.
_THREADS = 2


class Service:
    """The state that the routes share.

    Attributes:
        settings: The settings.
        limits: The limits on a request and on the queue.
        metrics: The metrics, for Prometheus.
        batcher: Computes sentences of several requests together.
        shutdown: Whether the service rejects new requests.
        failure: The error of loading the models, if there was one.
        seconds: Seconds that loading took.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.metrics = Metrics()
        self.failure: BaseException | None = None
        self.seconds = 0.0
        self._hosted: Hosted | None = None
        self.shutdown = False
        self.batcher = Batcher(self.limits.queue, self.limits.timeout, self.metrics)
        self._threads = ThreadPoolExecutor(_THREADS, "elmo-thread")
        self.metrics.ready.set_function(lambda: self.ready)
        self.metrics.cache_hits.set_function(lambda: sum(m.cache.hits for m in self._models()))
        self.metrics.cache_misses.set_function(lambda: sum(m.cache.misses for m in self._models()))

    def start(self, done: Callable[[], object] = lambda: None) -> None:
        """Load the models on the thread that will compute, then call `done` there."""

        def load() -> None:
            begin = time.perf_counter()
            try:
                self._hosted = host(self.settings)
            except BaseException as error:
                self.failure = error
            self.seconds = time.perf_counter() - begin
            done()

        self.batcher.start(load)

    def stop(self) -> None:
        """Reject new requests; pending ones are finished."""
        self.shutdown = True

    def close(self) -> None:
        """Finish pending work and stop the threads."""
        self.stop()
        self.batcher.close(self.limits.timeout)
        self._threads.shutdown(wait=False, cancel_futures=True)

    @property
    def ready(self) -> bool:
        """Whether requests are answered."""
        return self._hosted is not None and not self.shutdown

    @property
    def status(self) -> str:
        """The status in one word: loading, ok or stopping."""
        if self.shutdown:
            return "stopping"
        return "loading" if self._hosted is None else "ok"

    @property
    def hosted(self) -> Hosted:
        """The models and task models.

        Raises:
            RequestRejected: 503, while they are being loaded.
        """
        if self._hosted is None:
            raise RequestRejected.retry(503, "The models are being loaded; see /readyz.", 2)
        return self._hosted

    async def run_in_thread(self, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a slow function without blocking the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: do(*args, **kwargs))

    def _models(self) -> list[Any]:
        return [] if self._hosted is None else list(self._hosted.models.values())
