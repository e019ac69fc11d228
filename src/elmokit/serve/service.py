"""The service and where it stands: loading, ready, stopping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from elmokit.serve.batching import Batcher, Work
from elmokit.serve.errors import RequestRejected
from elmokit.serve.hosted import Hosted, host
from elmokit.serve.metrics import Metrics
from elmokit.serve.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")

# Threads for long work outside of the networks: tokenizing, writing large answers, searching.
_THREADS = 2


class Service:
    """What the routes use.

    Attributes:
        settings: What to serve, and where.
        limits: How much one request may ask for.
        metrics: Counts, for Prometheus.
        shutdown: Whether the service takes no new requests.
        failure: Why loading did not succeed.
        seconds: How long loading took.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.metrics = Metrics()
        self.failure: BaseException | None = None
        self.seconds = 0.0
        self._hosted: Hosted | None = None
        self.shutdown = False
        self._batcher = Batcher(self.limits.queue, self.limits.timeout, self.metrics)
        self._threads = ThreadPoolExecutor(_THREADS, "elmo-thread")
        self.metrics.ready.set_function(lambda: self.ready)
        self.metrics.cache_hits.set_function(lambda: sum(m.cache.hits for m in self._models()))
        self.metrics.cache_misses.set_function(lambda: sum(m.cache.misses for m in self._models()))

    # ---------------------------------------------------------------------------------- life

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

        self._batcher.start(load)

    def stop(self) -> None:
        """Take no new requests; finish the pending ones."""
        self.shutdown = True

    def close(self) -> None:
        """Finish pending work and end the threads."""
        self.stop()
        self._batcher.close(self.limits.timeout)
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
        """What is served.

        Raises:
            RequestRejected: 503, as long as it is not loaded.
        """
        if self._hosted is None:
            raise RequestRejected.retry(503, "The models are being loaded; see /readyz.", 2)
        return self._hosted

    # ---------------------------------------------------------------------------------- work

    async def compute(
        self,
        work: Work,
        items: Sequence[Any],
        costs: Sequence[int],
        keep: Callable[[Any], Any] = lambda result: result,
    ) -> list[Any]:
        """Compute items together with those of other requests."""
        return await self._batcher.submit(work, items, costs, keep)

    async def run_in_thread(self, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a function that takes a while, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: do(*args, **kwargs))

    def _models(self) -> list[Any]:
        return [] if self._hosted is None else list(self._hosted.models.values())
