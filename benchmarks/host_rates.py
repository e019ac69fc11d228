"""Measure everything that one CPU core does per token besides the biLM, for docs/how-to/scale.md.

    python benchmarks/host_rates.py TEXT [--out results/host-rates.json]

The biLM is replaced by a function that immediately returns random numbers in the model's output
shape (by default, the shape of the original model). The benchmark therefore measures tokenizing,
batching, selecting layers and writing a Parquet shard. Times are CPU seconds of one thread, the
minimum over several rounds, so that other processes on the machine have little effect.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import platform
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from elmokit.bulk.input import Chunk, read_chunks
from elmokit.bulk.job import ChunkJob
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.shards import ShardDirectory
from elmokit.embed.loading import load

SETTINGS = {
    "all layers, float32": EmbedSettings(),
    "all layers, float16": EmbedSettings(dtype="float16"),
    "average, float32": EmbedSettings(layer="average"),
    "average, float16": EmbedSettings(layer="average", dtype="float16"),
    "top, float16": EmbedSettings(layer="top", dtype="float16"),
}


class MemoryDirectory(ShardDirectory):
    """A directory of shards in memory, so that the disk is not measured."""

    @contextmanager
    def open_for_writing(self, _: str) -> Any:
        """Yield a file in memory."""
        yield io.BytesIO()


def cpu_seconds(work: Callable[[], Any], rounds: int) -> float:
    """Return the minimum CPU time of `work`."""
    best = float("inf")
    for _ in range(rounds):
        before = time.process_time()
        work()
        best = min(best, time.process_time() - before)
    return best


def rate(tokens: int, seconds: float) -> int:
    """Return tokens per second, rounded to thousands."""
    return round(tokens / seconds / 1000) * 1000


def main() -> None:
    """Run the benchmark and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("text", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--model", default="english-original")
    options = parser.parse_args()
    torch.set_num_threads(1)
    paths = (str(options.text),)
    chunk: Chunk = next(read_chunks(paths, EmbedSettings(), skip_bad=False))
    store = MemoryDirectory("memory")
    rates: dict[str, Any] = {}
    for name, settings in (
        ("tokenize lines", EmbedSettings()),
        ("find sentences and tokenize", EmbedSettings(split=True)),
        ("split at whitespace", EmbedSettings(tokenized=True)),
    ):
        job = ChunkJob(paths, settings, store)
        tokens = len(job.tokenize(chunk).tokens.ids)
        rates[name] = rate(tokens, cpu_seconds(lambda j=job: j.tokenize(chunk), options.rounds))
    model = load(options.model, device="cpu")
    replace_bilm(model)
    for name in ("compute, without the biLM", "write a shard to memory", "all of it"):
        rates[name] = {}
    for name, settings in SETTINGS.items():
        store.prepare(settings.layout(model.config), paths)
        job = ChunkJob(paths, settings, store)
        tokenized = job.tokenize(chunk)
        tokens = len(tokenized.tokens.ids)
        computed = job.compute(model, tokenized)
        for stage, work in (
            ("compute, without the biLM", lambda j=job, t=tokenized: j.compute(model, t)),
            ("write a shard to memory", lambda j=job, c=computed: j.write(model, c)),
            ("all of it", lambda j=job: j.run(model, chunk)),
        ):
            rates[stage][name] = rate(tokens, cpu_seconds(work, options.rounds))
    tokens = len(ChunkJob(paths, EmbedSettings(), store).tokenize(chunk).tokens.ids)
    result = {
        "what": "tokens per CPU second of one core for everything that the host does besides the "
        "biLM; the shard is written to memory",
        "model": options.model,
        "command": "python benchmarks/host_rates.py TEXT",
        "text": options.text.name,
        "bytes_per_token": round(chunk.n_bytes / tokens, 2),
        "machine": f"{platform.system()} {platform.machine()}, 1 of {os.cpu_count()} cores, shared",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "tokens_per_cpu_second": rates,
    }
    text = json.dumps(result, indent=1) + "\n"
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)


def replace_bilm(model: Any) -> None:
    """Let the model return zeros for token vectors, and the same random layers for every call."""
    layers: dict[int, torch.Tensor] = {}

    def contextualize(x: torch.Tensor, packing: Any, state: Any = None) -> Any:
        if len(x) not in layers:
            layers[len(x)] = torch.rand(model.config.n_layers, len(x), model.config.output_dim)
        return layers[len(x)], state

    model.engine.contextualize = contextualize
    model.engine.encode = lambda ids: torch.zeros(len(ids), model.config.lstm.projection_dim)


if __name__ == "__main__":
    main()
