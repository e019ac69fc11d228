"""The worker side of the protocol: requests and responses are lines of JSON.

It runs in the environment of each implementation (Python 3.9 for AllenNLP) and therefore only uses
the standard library. The other side is child.py.

    {"do": "load", ...}                              -> {"load_s": ..., "versions": {...}}
    {"do": "time", "sentences": [[...]], "batch": B} -> {"seconds": ..., "tokens": ...}
    {"do": "vectors", "sentences": ..., "out": FILE} -> an .npy file (L + 1, N, 2D), zero state
    {"do": "memory"}                                 -> {"rss_gib": ..., "peak_gib": ...}

The process exits at the end of the input.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def memory() -> dict[str, Any]:
    """Return the current and the peak memory usage of this process."""
    # VmHWM is reset when a program starts. The peak of getrusage is inherited from the parent.
    lines = Path("/proc/self/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines if ":" in line)
    current, peak = (int(values[key].split()[0]) / 2**20 for key in ("VmRSS", "VmHWM"))
    return {"rss_gib": round(current, 3), "peak_gib": round(peak, 3)}


def timed(embed: Callable[[list[list[str]]], object]) -> Callable[..., dict[str, Any]]:
    """Return the handler of "time" requests for a function that embeds one batch."""

    def handle(sentences: list[list[str]], batch: int) -> dict[str, Any]:
        begin = time.perf_counter()
        for start in range(0, len(sentences), batch):
            embed(sentences[start : start + batch])
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "tokens": sum(map(len, sentences))}

    return handle


def serve(**requests: Callable[..., dict[str, Any]]) -> None:
    """Handle requests until the input ends. Output of libraries is redirected to stderr."""
    responses = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    handlers = {"memory": memory, **requests}
    for line in sys.stdin:
        values = json.loads(line)
        do = values.pop("do")
        responses.write(json.dumps(handlers[do](**values)) + "\n")
        responses.flush()
