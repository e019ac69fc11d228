"""What one core does for each token besides the biLM: the figures behind docs/how-to/scale.md.

    python benchmarks/host_rates.py TEXT [--out results/host-rates.json]

The biLM is replaced by one that answers at once with numbers of the model's shape (by default the
original one): what is left is tokenizing, batching, choosing layers and writing a Parquet shard.
Times are CPU seconds of one thread, the best of some rounds: other work on the machine does not
count.
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
from elmokit.embed.model import load

SETTINGS = {
    "all layers, float32": EmbedSettings(),
    "all layers, float16": EmbedSettings(dtype="float16"),
    "average, float32": EmbedSettings(layer="average"),
    "average, float16": EmbedSettings(layer="average", dtype="float16"),
    "top, float16": EmbedSettings(layer="top", dtype="float16"),
}


class Nowhere(ShardDirectory):
    """A folder that keeps nothing, so that no disk is measured."""

    @contextmanager
    def writing(self, _: str) -> Any:
        """Write to memory."""
        yield io.BytesIO()


def cpu_seconds(work: Callable[[], Any], rounds: int) -> float:
    """Return the least CPU time that some work took."""
    best = float("inf")
    for _ in range(rounds):
        before = time.process_time()
        work()
        best = min(best, time.process_time() - before)
    return best


def rate(tokens: int, seconds: float) -> int:
    """Return tokens per second, in thousands."""
    return round(tokens / seconds / 1000) * 1000


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("text", type=Path)
    arguments.add_argument("--out", type=Path)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--model", default="english-original")
    given = arguments.parse_args()
    torch.set_num_threads(1)
    documents = (str(given.text),)
    chunk: Chunk = next(read_chunks(documents, EmbedSettings(), skip_bad=False))
    store = Nowhere("nowhere")
    rates: dict[str, Any] = {}
    for name, settings in (
        ("tokenize lines", EmbedSettings()),
        ("find sentences and tokenize", EmbedSettings(split=True)),
        ("split at whitespace", EmbedSettings(tokenized=True)),
    ):
        job = ChunkJob(documents, settings, store)
        tokens = len(job.tokenize(chunk).tokens.ids)
        rates[name] = rate(tokens, cpu_seconds(lambda j=job: j.tokenize(chunk), given.rounds))
    model = load(given.model, device="cpu")
    pretend(model)
    for name in ("compute, without the biLM", "write a shard to memory", "all of it"):
        rates[name] = {}
    for name, settings in SETTINGS.items():
        store.prepare(settings.layout(model.config), documents)
        job = ChunkJob(documents, settings, store)
        tokenized = job.tokenize(chunk)
        tokens = len(tokenized.tokens.ids)
        computed = job.compute(model, tokenized)
        for stage, work in (
            ("compute, without the biLM", lambda j=job, t=tokenized: j.compute(model, t)),
            ("write a shard to memory", lambda j=job, c=computed: j.write(model, c)),
            ("all of it", lambda j=job: j.run(model, chunk)),
        ):
            rates[stage][name] = rate(tokens, cpu_seconds(work, given.rounds))
    tokens = len(ChunkJob(documents, EmbedSettings(), store).tokenize(chunk).tokens.ids)
    result = {
        "what": "tokens per CPU second of one core for all that the host does besides the biLM; "
        "the shard is written to memory",
        "model": given.model,
        "command": "python benchmarks/host_rates.py TEXT",
        "text": given.text.name,
        "bytes_per_token": round(chunk.n_bytes / tokens, 2),
        "machine": f"{platform.system()} {platform.machine()}, 1 of {os.cpu_count()} cores, shared",
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
        "tokens_per_cpu_second": rates,
    }
    text = json.dumps(result, indent=1) + "\n"
    sys.stdout.write(text)
    if given.out:
        given.out.write_text(text)


def pretend(model: Any) -> None:
    """Let the model answer at once: x of every token is known, and all layers are the same."""
    layers: dict[int, torch.Tensor] = {}

    def contextualize(x: torch.Tensor, packing: Any, state: Any = None) -> Any:
        if len(x) not in layers:
            layers[len(x)] = torch.rand(model.config.n_layers, len(x), model.config.output_dim)
        return layers[len(x)], state

    model.engine.contextualize = contextualize
    model.engine.encode = lambda ids: torch.zeros(len(ids), model.config.lstm.projection_dim)


if __name__ == "__main__":
    main()
