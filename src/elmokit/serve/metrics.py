"""Figures in the text format of Prometheus."""

from __future__ import annotations

import os
import threading
import time
import traceback
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_TOKENS = (16, 64, 256, 1024, 2048, 4096, 8192)

Labels = tuple[tuple[str, str], ...]

_HELP = {
    "elmo_requests_total": "Requests answered, by route and status.",
    "elmo_refused_total": "Requests refused, by reason.",
    "elmo_tokens_total": "Tokens computed, by work.",
    "elmo_items_total": "Sentences or examples computed, by work.",
    "elmo_batches_total": "Batches computed, by work.",
    "elmo_compute_seconds_total": "Seconds spent computing, by work.",
    "elmo_failures_total": "Errors that are the fault of the service.",
    "elmo_disconnects_total": "Clients that left before their answer was ready.",
    "elmo_request_seconds": "From the first byte of a request to the last of its answer.",
    "elmo_batch_tokens": "Tokens of a batch.",
}


class _Histogram:
    """Counts of values by upper bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: Labels) -> Iterator[str]:
        held = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            held += count
            edge = "+Inf" if bound == float("inf") else f"{bound:g}"
            yield f"{name}_bucket{_braces((*labels, ('le', edge)))} {held}"
        yield f"{name}_sum{_braces(labels)} {self.total:.6f}"
        yield f"{name}_count{_braces(labels)} {held}"


class Metrics:
    """What has happened since the start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counters: dict[str, dict[Labels, float]] = defaultdict(lambda: defaultdict(float))
        self._histograms: dict[str, dict[Labels, _Histogram]] = defaultdict(dict)
        self._gauges: dict[str, tuple[str, Callable[[], float]]] = {}
        self._begin = time.time()
        self.gauge("process_start_time_seconds", "When the service started.", lambda: self._begin)
        if Path("/proc/self/statm").is_file():
            self.gauge("process_resident_memory_bytes", "Memory that is held.", resident_bytes)

    def count(self, name: str, by: float = 1, **labels: str) -> None:
        """Add to a counter."""
        with self._lock:
            self._counters[name][tuple(labels.items())] += by

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Name a figure that is read when it is asked for."""
        self._gauges[name] = (text, read)

    def request(self, route: str, status: int, seconds: float) -> None:
        """Count an answered request."""
        self.count("elmo_requests_total", route=route, status=str(status))
        self._observe("elmo_request_seconds", _SECONDS, seconds, route=route)

    def batch(self, work: str, items: int, tokens: int, seconds: float) -> None:
        """Count a computed batch."""
        self.count("elmo_batches_total", work=work)
        self.count("elmo_items_total", items, work=work)
        self.count("elmo_tokens_total", tokens, work=work)
        self.count("elmo_compute_seconds_total", seconds, work=work)
        self._observe("elmo_batch_tokens", _TOKENS, tokens, work=work)

    def failed(self, error: BaseException) -> None:
        """Count an error of our own, and show it to who looks after the service."""
        self.count("elmo_failures_total")
        traceback.print_exception(error)

    def text(self) -> str:
        """Return everything, as Prometheus reads it."""
        lines: list[str] = []
        for name, (text, read) in self._gauges.items():
            lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge", f"{name} {read():.17g}"]
        with self._lock:
            for name, by_label in self._counters.items():
                lines += [f"# HELP {name} {_HELP.get(name, name)}", f"# TYPE {name} counter"]
                lines += [f"{name}{_braces(labels)} {v:.17g}" for labels, v in by_label.items()]
            for name, histograms in self._histograms.items():
                lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} histogram"]
                for labels, histogram in histograms.items():
                    lines += histogram.lines(name, labels)
        return "\n".join(lines) + "\n"

    def _observe(self, name: str, bounds: tuple[float, ...], value: float, **labels: str) -> None:
        with self._lock:
            histograms = self._histograms[name]
            key = tuple(labels.items())
            if key not in histograms:
                histograms[key] = _Histogram(bounds)
            histograms[key].add(value)


def resident_bytes() -> int:
    """Return the memory that this process holds."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


def _braces(labels: Labels) -> str:
    if not labels:
        return ""
    parts = (f'{name}="{_escaped(value)}"' for name, value in labels)
    return "{" + ",".join(parts) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
