"""The service and where it stands: loading, ready, stopping."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from elmokit.serve.batching import Batcher, Work, stopping
from elmokit.serve.hosted import Hosted, host
from elmokit.serve.metrics import Metrics
from elmokit.serve.refusals import Refusal
from elmokit.serve.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")

# Threads for what is not the networks' work: tokens of long texts, large answers, searches.
_ASIDE = 2


class Service:
    """What the routes ask.

    Attributes:
        settings: What was asked for.
        limits: How much one request may ask for.
        metrics: What has happened.
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
        self._stopping = False
        self._batcher = Batcher(self.limits.queue, self.limits.queue_tokens, self.metrics)
        self._aside = ThreadPoolExecutor(_ASIDE, "elmo-aside")
        self.metrics.gauge("elmo_ready", "1 if requests are answered.", lambda: float(self.ready))
        self.metrics.gauge("elmo_token_cache_hits", "Tokens whose x_k was known.", self._hits)
        self.metrics.gauge("elmo_token_cache_misses", "Tokens that were encoded.", self._misses)

    # ---------------------------------------------------------------------------------- life

    def start(self, done: Callable[[], object] = lambda: None) -> None:
        """Begin to load, on the thread that will compute; `done` is called there at the end."""

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
        """Take no new requests; those that were taken are finished."""
        self._stopping = True

    def check_open(self) -> None:
        """Refuse a new request once the service stops."""
        if self._stopping:
            raise stopping()

    def close(self) -> None:
        """Finish, and let the threads end."""
        self.stop()
        self._batcher.close(self.limits.timeout)
        self._aside.shutdown(wait=False, cancel_futures=True)

    @property
    def ready(self) -> bool:
        """Whether requests are answered."""
        return self._hosted is not None and not self._stopping

    @property
    def status(self) -> str:
        """Where it stands, in a word."""
        if self._stopping:
            return "stopping"
        return "loading" if self._hosted is None else "ok"

    @property
    def hosted(self) -> Hosted:
        """What is served.

        Raises:
            Refusal: 503, as long as it is not loaded.
        """
        if self._hosted is None:
            raise Refusal(
                503,
                "The models are being loaded. Come again in a few seconds; /readyz tells when.",
                headers={"Retry-After": "2"},
            )
        return self._hosted

    # ---------------------------------------------------------------------------------- work

    async def compute(
        self,
        work: Work,
        items: Sequence[Any],
        costs: Sequence[int],
        keep: Callable[[Any], Any] = lambda found: found,
    ) -> list[Any]:
        """Have items computed together with those of other requests."""
        return await self._batcher.submit(
            work, items, costs, timeout=self.limits.timeout, keep=keep
        )

    async def aside(self, do: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do something that takes a while, without holding up the other requests."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._aside, lambda: do(*args, **kwargs))

    def _hits(self) -> float:
        return float(sum(model.cache.hits for model in self._models()))

    def _misses(self) -> float:
        return float(sum(model.cache.misses for model in self._models()))

    def _models(self) -> list[Any]:
        return [] if self._hosted is None else list(self._hosted.models.values())
