"""Measure `embed` and `stream` on lists of tokens in memory, and the latency of one sentence.

    python benchmarks/in_memory.py TEXT --device cuda -o result.json

TEXT contains one tokenized sentence per line. `stream` reads the complete text, and `embed` reads
the first --embed-tokens tokens. `elmo bench pipeline` measures the complete pipeline from text to
files.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import elmokit

_WARM_UP_TOKENS = 200_000


def in_memory(model: Any, sentences: list[list[str]], n_embed: int) -> dict[str, Any]:
    """Measure `stream` and `embed` on lists of tokens, with an empty and a filled token cache.

    The speed is sustained: kernels are compiled and buffers are allocated before the measurement.
    """
    ends = np.cumsum([len(words) for words in sentences])
    first = sentences[: np.searchsorted(ends, n_embed) + 1]
    model.embed(sentences[: np.searchsorted(ends, _WARM_UP_TOKENS) + 1])
    results = {}
    cases: dict[str, tuple[Callable[[Any], Iterable[Any]], list[list[str]]]] = {
        "embed": (model.embed, first),
        "stream": (model.stream, sentences),
    }
    for name, (run, inputs) in cases.items():
        n_tokens = sum(map(len, inputs))
        for words in ("new", "known"):
            if words == "new":
                model.cache.clear()
            started = time.perf_counter()
            for _ in run(inputs):
                pass
            seconds = time.perf_counter() - started
            result = {"tokens": n_tokens, "tokens_per_second": round(n_tokens / seconds)}
            results[f"{name}, {words} words"] = result
            print(name, words, result, flush=True)
    return results


def latency(model: Any) -> float:
    """Return the minimum time for one sentence over 50 runs, in milliseconds."""
    sentence = "I read the book yesterday and it was good .".split()
    times = []
    for _ in range(50):
        started = time.perf_counter()
        model.embed([sentence])
        times.append(time.perf_counter() - started)
    return round(1000 * min(times), 3)


def main() -> None:
    """Run the benchmark and write the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("--model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fast")
    parser.add_argument("--embed-tokens", type=int, default=1_000_000)
    parser.add_argument("--output", "-o", type=Path, help="JSON file for the results")
    options = parser.parse_args()
    model = elmokit.load(options.model, device=options.device, precision=options.precision)
    on_gpu = model.device.type == "cuda"
    sentences = [line.split() for line in Path(options.text).read_text("utf-8").splitlines()]
    report = {
        "command": " ".join(["python", *sys.argv]),
        "machine": torch.cuda.get_device_name() if on_gpu else platform.processor(),
        "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
        "precision": options.precision,
        "in_memory": in_memory(model, [s for s in sentences if s], options.embed_tokens),
        "one_sentence_ms": latency(model),
    }
    if options.output is not None:
        options.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
