"""Measure the speed of complete training steps on synthetic text or a prepared corpus."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import numpy as np
import torch

from elmokit.data.corpus import Corpus
from elmokit.data.layout import END_ID
from elmokit.data.streams import Streams
from elmokit.model.chars import char_ids_table
from elmokit.text.synthetic import draw_ids, make_words
from elmokit.text.vocab import SPECIALS
from elmokit.train.batches import Batch, make_batch, needed_columns
from elmokit.train.config import RunConfig
from elmokit.train.loop import make_step

_SYNTHETIC_TOKENS = 40_000_000


class BenchmarkText:
    """The text of the benchmark.

    Args:
        corpus: A prepared corpus. Default: synthetic text.
        n_words: The vocabulary size of synthetic text.
    """

    def __init__(self, corpus: Corpus | None, n_words: int) -> None:
        if corpus is not None:
            self.tokens, self.documents = corpus.tokens(), corpus.documents()
            self.chars, self.n_words = corpus.chars, corpus.n_words
            return
        n = n_words - len(SPECIALS)
        self.tokens = (draw_ids(n, _SYNTHETIC_TOKENS) + len(SPECIALS)).astype(np.uint32)
        self.tokens[24::25] = END_ID
        self.documents = np.arange(0, _SYNTHETIC_TOKENS + 1, 500, dtype=np.int64)
        self.chars = char_ids_table([*SPECIALS, *make_words(n)]).astype(np.uint16)
        self.n_words = n_words

    def batches(self, config: RunConfig, n: int) -> list[Batch]:
        """Return the first `n` batches."""
        assert config.model.char_cnn is not None
        columns = needed_columns(self.chars, config.model.char_cnn.max_width)
        streams = Streams(
            self.tokens,
            self.documents,
            rows=config.step.rows,
            steps=config.step.steps,
            restart=config.restart,
        )
        return [make_batch(batch, columns, self.n_words) for batch in islice(streams, n)]


def measure(
    config: RunConfig, text: BenchmarkText, device: torch.device, *, rounds: int = 40
) -> dict[str, Any]:
    """Measure the time of complete training steps, including clipping and the optimizer.

    Returns:
        The throughput in tokens per second (a token is counted once, although both directions read
        it), the median time of a step in milliseconds, the mean number of distinct words per step,
        the peak GPU memory, and the settings.
    """
    batches = text.batches(config, 8)
    on_gpu = device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    step = make_step(config, text.chars, text.n_words, device)
    if on_gpu:
        capacity = {
            c: max(dict(b.groups).get(c, 0) for b in batches) for b in batches for c, _ in b.groups
        }
        capacity[0] = max(len(b.words) for b in batches)
        step.set_capacity({c: -(-n // 128) * 128 for c, n in capacity.items()})
    times = []
    # Time groups of four steps, because training does not wait for individual steps.
    for group in range(-1, max(1, rounds // 4)):  # group -1 is the warm-up
        start = time.perf_counter()
        for i in range(4):
            step(batches[(4 * group + i) % len(batches)], 4 * group + i + 4, 1e-3)
        if on_gpu:
            torch.cuda.synchronize()
        times.append((time.perf_counter() - start) / 4)
    seconds = float(np.median(times[1:]))
    return {
        "rows": config.step.rows,
        "steps": config.step.steps,
        "tokens_per_second": round(config.tokens_per_step / seconds, 1),
        "milliseconds": round(seconds * 1000, 3),
        "distinct": round(float(np.mean([len(b.types) for b in batches]))),
        "memory_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2) if on_gpu else 0.0,
        "optimizer": config.optimizer.kind,
    }
