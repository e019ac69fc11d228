"""The answering end of a peer: requests and answers are lines of JSON.

It runs inside the peer's own environment (Python 3.9 for AllenNLP), so it needs nothing but the
standard library. The asking end is child.py.

    {"do": "load", ...}                              -> {"load_s": ..., "versions": {...}}
    {"do": "time", "sentences": [[...]], "batch": B} -> {"seconds": ..., "tokens": ...}
    {"do": "vectors", "sentences": ..., "out": FILE} -> an .npy file (L + 1, N, 2D), fresh state
    {"do": "memory"}                                 -> {"rss_gib": ..., "peak_gib": ...}

The end of the input is the end of the process.
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
    """Return the memory that this process holds, and the most it ever held."""
    # VmHWM begins anew with each program; what getrusage tells is inherited from the parent.
    lines = Path("/proc/self/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines if ":" in line)
    held, peak = (int(values[key].split()[0]) / 2**20 for key in ("VmRSS", "VmHWM"))
    return {"rss_gib": round(held, 3), "peak_gib": round(peak, 3)}


def timed(embed: Callable[[list[list[str]]], object]) -> Callable[..., dict[str, Any]]:
    """Make the answer to "time" of a function that embeds one batch."""

    def answer(sentences: list[list[str]], batch: int) -> dict[str, Any]:
        begin = time.perf_counter()
        for start in range(0, len(sentences), batch):
            embed(sentences[start : start + batch])
        seconds = time.perf_counter() - begin
        return {"seconds": seconds, "tokens": sum(map(len, sentences))}

    return answer


def serve(**requests: Callable[..., dict[str, Any]]) -> None:
    """Answer until the input ends. Whatever a library prints goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    known = {"memory": memory, **requests}
    for line in sys.stdin:
        values = json.loads(line)
        do = values.pop("do")
        answers.write(json.dumps(known[do](**values)) + "\n")
        answers.flush()
