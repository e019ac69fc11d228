"""Prometheus metrics. The number of label values is bounded."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192)


class Metrics:
    """The metrics of a service, in a separate registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        seconds = partial(Histogram, registry=self.registry, buckets=_SECONDS)
        tokens = partial(Histogram, registry=self.registry, buckets=_TOKENS)
        self.ready = gauge("elmo_ready", "1 if the service is ready.")
        self.queue_requests = gauge("elmo_queue_requests", "Requests in the queue.")
        self.queue_tokens = gauge("elmo_queue_tokens", "Tokens in the queue.")
        self.cache_hits = gauge("elmo_token_cache_hits", "Token cache hits.")
        self.cache_misses = gauge("elmo_token_cache_misses", "Token cache misses.")
        self.requests = counter("elmo_requests", "Requests.", ["route", "status"])
        self.request_seconds = seconds("elmo_request_seconds", "Seconds per request.", ["route"])
        self.items = counter("elmo_items", "Sentences or examples computed.", ["work"])
        self.batch_tokens = tokens("elmo_batch_tokens", "Tokens per batch.", ["work"])
        self.batch_seconds = seconds("elmo_batch_seconds", "Seconds to compute a batch.", ["work"])
