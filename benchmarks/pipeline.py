"""Measure the way from text to disk: `elmo embed` to each output, `embed` and `stream` in memory.

    python benchmarks/pipeline.py TEXT --device cuda --workers 14 --out /dev/shm -o result.json

TEXT is read whole for the files and for `stream`; `embed` gets the first --embed-tokens tokens.
For each output: tokens/s of the whole run and after the first half million tokens ("sustained":
without loading the model in each worker), bytes/s, the busy seconds of each stage, and the raw rate
at which the disk of --out takes fsynced writes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch

import elmokit
from elmokit.bulk.executors import Workers
from elmokit.bulk.run import embed_corpus
from elmokit.bulk.settings import EmbedSettings

OUTPUTS: dict[str, tuple[str, dict[str, Any]]] = {
    "parquet folder, top, float16": ("shards", {"layer": "top", "dtype": "float16"}),
    "parquet folder, all layers, float16": ("shards", {"layer": "all", "dtype": "float16"}),
    "hdf5 file, top, float16": ("vectors.h5", {"layer": "top", "dtype": "float16"}),
}

# Tokens after which all workers are at work.
_STARTED = 500_000


def to_disk(model: Any, text: str, folder: Path) -> dict[str, Any]:
    """Embed a text into each output."""
    results = {}
    for name, (output, settings) in OUTPUTS.items():
        reports: list[tuple[float, int]] = []
        started = time.perf_counter()
        summary = embed_corpus(
            model,
            [text],
            folder / output,
            EmbedSettings(**settings),
            on_progress=lambda p, to=reports: to.append((time.perf_counter(), p.tokens)),  # type: ignore[misc]
        )
        seconds = time.perf_counter() - started
        late = [report for report in reports if report[1] >= _STARTED] or reports
        (begin, done), (end, tokens) = late[0], late[-1]
        results[name] = {
            "tokens": summary.tokens,
            "seconds": round(seconds, 3),
            "tokens_per_second": round(summary.tokens / seconds),
            "sustained_tokens_per_second": round((tokens - done) / max(end - begin, 1e-9)),
            "bytes_per_second": round(summary.written_bytes / seconds),
            "stages": summary.stages,
            "bottleneck": summary.bottleneck,
        }
        print(name, results[name], flush=True)
        path = folder / output
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return results


def in_memory(model: Any, sentences: list[list[str]], n_embed: int) -> dict[str, Any]:
    """Measure `stream` and `embed` on lists of tokens, with new and with known words."""
    first: list[list[str]] = []
    tokens = 0
    for words in sentences:
        if tokens >= n_embed:
            break
        first.append(words)
        tokens += len(words)
    results = {}
    cases: dict[str, tuple[Callable[[Any], Iterable[Any]], list[list[str]]]] = {
        "embed": (model.embed, first),
        "stream": (model.stream, sentences),
    }
    for name, (run, given) in cases.items():
        n_tokens = sum(map(len, given))
        for words in ("new", "known"):
            if words == "new":
                model.cache.clear()
            started = time.perf_counter()
            for _ in run(given):
                pass
            seconds = time.perf_counter() - started
            result = {"tokens": n_tokens, "tokens_per_second": round(n_tokens / seconds)}
            results[f"{name}, {words} words"] = result
            print(name, words, result, flush=True)
    return results


def latency(model: Any) -> float:
    """Return the milliseconds that one sentence takes, the best of 50."""
    sentence = "I read the book yesterday and it was good .".split()
    times = []
    for _ in range(50):
        started = time.perf_counter()
        model.embed([sentence])
        times.append(time.perf_counter() - started)
    return round(1000 * min(times), 3)


def disk_rate(folder: Path, n_bytes: int = 2**30) -> int:
    """Return the bytes per second of fsynced writes."""
    block = os.urandom(2**24)
    path = folder / "rate"
    started = time.perf_counter()
    with path.open("wb") as file:
        for _ in range(n_bytes // len(block)):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
    return round(n_bytes / (time.perf_counter() - started))


def main() -> None:
    """Measure and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("text")
    parser.add_argument("--model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fast")
    parser.add_argument("--workers", type=int, default=1, help="processes that embed to disk")
    parser.add_argument("--embed-tokens", type=int, default=1_000_000)
    parser.add_argument("--out", type=Path, help="where vectors are written for a while")
    parser.add_argument("--output", "-o", type=Path, help="JSON file for the results")
    options = parser.parse_args()
    model = elmokit.load(options.model, device=options.device, precision=options.precision)
    on_gpu = model.device.type == "cuda"
    workers = None
    if options.workers > 1:
        devices = (str(model.device),) * options.workers
        workers = Workers(devices, options.model, None, options.precision)
    with tempfile.TemporaryDirectory(dir=options.out) as folder:
        model.embed(["Warm up ."] * 64)
        results = {
            "disk_bytes_per_second": disk_rate(Path(folder)),
            "to_disk": to_disk(workers or model, options.text, Path(folder)),
        }
    sentences = [line.split() for line in Path(options.text).read_text("utf-8").splitlines()]
    results["in_memory"] = in_memory(model, [s for s in sentences if s], options.embed_tokens)
    results["one_sentence_ms"] = latency(model)
    report = {
        "command": " ".join(["python", *sys.argv]),
        "machine": torch.cuda.get_device_name() if on_gpu else platform.processor(),
        "cores": os.cpu_count(),
        "date": time.strftime("%Y-%m-%d"),
        "precision": options.precision,
        "workers": options.workers,
        **results,
    }
    if options.output is not None:
        options.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
