"""The state that the routes share: models, queue and status."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from elmokit.serve.batching import Batcher
from elmokit.serve.errors import RequestRejected
from elmokit.serve.hosted import Hosted
from elmokit.serve.metrics import Metrics
from elmokit.serve.settings import Settings


class Service:
    """The state that the routes share.

    Attributes:
        settings: The settings.
        limits: The limits on a request and on the queue.
        metrics: The metrics for Prometheus.
        batcher: Computes the sentences of several requests together.
        shutdown: Whether the service rejects new requests.
        failure: The error that occurred while loading the models, if any.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.metrics = Metrics()
        self.failure: BaseException | None = None
        self._hosted: Hosted | None = None
        self.shutdown = False
        self.batcher = Batcher(self.limits.queue, self.limits.timeout, self.metrics)
        self.metrics.ready.set_function(lambda: self.status == "ok")

    def start(self, loaded: Callable[[], object]) -> None:
        """Load the models on the compute thread, then call `loaded` there."""

        def load() -> None:
            try:
                self._hosted = Hosted(self.settings)
                models = self._hosted.models.values()
                self.metrics.cache_hits.set_function(lambda: sum(m.cache.hits for m in models))
                self.metrics.cache_misses.set_function(lambda: sum(m.cache.misses for m in models))
            except BaseException as error:
                self.failure = error
            loaded()

        self.batcher.start(load)

    def close(self) -> None:
        """Finish pending work and stop the compute thread."""
        self.shutdown = True
        self.batcher.close(self.limits.timeout)

    @property
    def status(self) -> Literal["loading", "ok", "stopping"]:
        """The status. Requests are only answered if it is "ok"."""
        if self.shutdown:
            return "stopping"
        return "loading" if self._hosted is None else "ok"

    @property
    def hosted(self) -> Hosted:
        """The models, task models, index and static vectors.

        Raises:
            RequestRejected: 503 while they are being loaded.
        """
        if self._hosted is None:
            raise RequestRejected.retry("The models are being loaded; see /readyz.", 503, 2)
        return self._hosted
