"""Metrics for Prometheus. All labels are bounded: routes, statuses, kinds of work."""

from __future__ import annotations

import logging

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192)

_log = logging.getLogger(__name__)


class Metrics:
    """The metrics of one service, in their own registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(name, text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(name, text, registry=registry)

        self.ready = gauge("elmo_ready", "1 if the service is ready.")
        self.queue_requests = gauge("elmo_queue_requests", "Requests in the queue.")
        self.queue_tokens = gauge("elmo_queue_tokens", "Tokens in the queue.")
        self.cache_hits = gauge("elmo_token_cache_hits", "Token cache hits.")
        self.cache_misses = gauge("elmo_token_cache_misses", "Token cache misses.")
        self.requests = counter("elmo_requests", "Requests by route and status.", "route", "status")
        self.rejected = counter("elmo_rejected", "Requests rejected, by reason.", "reason")
        self.failures = counter("elmo_failures", "Internal errors.")
        self.disconnects = counter(
            "elmo_disconnects", "Requests whose client disconnected before the response."
        )
        self._items = counter("elmo_items", "Sentences or examples computed.", "work")

        def histogram(name: str, text: str, label: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(name, text, [label], buckets=buckets, registry=registry)

        self.request_seconds = histogram(
            "elmo_request_seconds",
            "Seconds from the first byte of a request to the last byte of its response.",
            "route",
            _SECONDS,
        )
        self._batch_tokens = histogram("elmo_batch_tokens", "Tokens per batch.", "work", _TOKENS)
        self._batch_seconds = histogram(
            "elmo_batch_seconds", "Seconds to compute a batch.", "work", _SECONDS
        )

    def observe_batch(self, work: str, items: int, tokens: int, seconds: float) -> None:
        """Count a computed batch."""
        self._items.labels(work).inc(items)
        self._batch_tokens.labels(work).observe(tokens)
        self._batch_seconds.labels(work).observe(seconds)

    def log_failure(self, error: BaseException) -> None:
        """Count an internal error and log its traceback."""
        self.failures.inc()
        _log.error("Internal server error", exc_info=error)

    def text(self) -> bytes:
        """Return all metrics in the text format."""
        return generate_latest(self.registry)
