"""What one core does for each token besides the biLM: the figures behind docs/how-to/scale.md.

    python benchmarks/host_rates.py TEXT [--out results/host-rates.json]

The biLM is replaced by one that answers at once with numbers of the original shape (2 x 4096/512):
what is left is tokenising, batching, choosing layers and writing a Parquet shard. Times are CPU
seconds of one thread, the best of some rounds: other work on the machine does not count.
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

from elmokit.bulk.documents import Chunk, cut_chunks
from elmokit.bulk.part import compute_part
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.shards import ShardPlan, write_shard
from elmokit.embed.batching import windows
from elmokit.embed.model import load

SETTINGS = {
    "all layers, float32": EmbedSettings(),
    "all layers, float16": EmbedSettings(dtype="float16"),
    "average, float32": EmbedSettings(layer="average"),
    "average, float16": EmbedSettings(layer="average", dtype="float16"),
    "top, float16": EmbedSettings(layer="top", dtype="float16"),
}


class Nowhere:
    """A folder that keeps nothing, so that no disk is measured."""

    @contextmanager
    def writing(self, _: str) -> Any:
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
    given = arguments.parse_args()
    torch.set_num_threads(1)
    chunk = next(cut_chunks(0, str(given.text)))
    rates: dict[str, Any] = {}
    for name, split, tokenized in (
        ("tokenise lines", False, False),
        ("find sentences and tokenise", True, False),
        ("split at whitespace", False, True),
    ):
        found = list(chunk.sentences(tokenized=tokenized, split=split))
        tokens = sum(len(s.tokens) for s in found)
        seconds = cpu_seconds(
            lambda t=tokenized, s=split: list(chunk.sentences(tokenized=t, split=s)), given.rounds
        )
        rates[name] = rate(tokens, seconds)
    model = load("english-original", device="cpu")
    first = next(iter(windows(((s.tokens, s) for s in found_lines(chunk)), 16384)))
    sentences = [sentence for _, sentence in first]
    tokens = sum(len(s.tokens) for s in sentences)
    pretend(model)
    compute_part(model, sentences, EmbedSettings())  # fills the table of x
    model.cache.clear = lambda: None  # the encoder is no part of this
    rates["batch, pack, order (all layers brought home)"] = rate(
        tokens,
        cpu_seconds(lambda: model.compute([s.tokens for s in sentences]), given.rounds),
    )
    piece = Chunk(0, 0, True, [s.place.line for s in sentences], [s.text for s in sentences])
    rates["whole shard, without the biLM"] = {}
    for name, settings in SETTINGS.items():
        plan = ShardPlan((str(given.text),), "nowhere", settings)
        seconds = cpu_seconds(
            lambda p=plan: write_shard(model, p, piece, Nowhere()),  # type: ignore[arg-type]
            given.rounds,
        )
        rates["whole shard, without the biLM"][name] = rate(tokens, seconds)
    result = {
        "what": "tokens per CPU second of one core for all that the host does besides the biLM; "
        "model shape 2x4096/512; the shard is written to memory",
        "command": "python benchmarks/host_rates.py TEXT",
        "text": given.text.name,
        "bytes_per_token": round(chunk.n_bytes / sum(len(s.tokens) for s in found_lines(chunk)), 2),
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


def found_lines(chunk: Chunk) -> list[Any]:
    """Return the sentences of a chunk whose lines are sentences."""
    return list(chunk.sentences(tokenized=False, split=False))


def pretend(model: Any) -> None:
    """Let the model answer at once: x of every token is known, and all layers are the same."""
    layers: dict[int, torch.Tensor] = {}

    def contextualize(x: torch.Tensor, packing: Any, state: Any = None) -> Any:
        if len(x) not in layers:
            layers[len(x)] = torch.rand(model.config.n_layers, len(x), model.config.output_dim)
        return layers[len(x)], state

    model.engine.contextualize = contextualize
    model.engine.encode = lambda ids: torch.zeros(len(ids), model.config.lstm.projection_dim)
    model.cache._encode = model.engine.encode


if __name__ == "__main__":
    main()
