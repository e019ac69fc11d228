"""How fast a machine trains: whole steps, on words as English has them or on a prepared corpus.

Made-up text has the two properties that decide the speed: ids follow Zipf's law with an exponent
that gives about 9,000 distinct words in 2 x 1024 x 20 tokens, as English does, and words have the
lengths of English words.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.data.corpus import Corpus
from elmokit.data.streams import END, Streams
from elmokit.model.bilm import BiLM
from elmokit.model.chars import char_ids_table
from elmokit.model.softmax import LMHead
from elmokit.train.batches import Batch, columns_of, make_batch
from elmokit.train.config import RunConfig
from elmokit.train.step import PlainStep, TrainStep

_DISTINCT, _DRAWN = 9000, 2 * 1024 * 20


@dataclass(frozen=True)
class Speed:
    """The speed of one batch size.

    Attributes:
        rows: B.
        steps: T.
        tokens_per_second: A token read by both directions counts once.
        milliseconds: Of one step, the median.
        distinct: Distinct words per step, on average.
        memory_gib: Peak of device memory; 0 on a CPU.
        optimizer: Which one.
        share_of_peak: Floating-point work of the products in a step over its time, as a share of
            what a large bfloat16 product reaches on this device; 0 on a CPU.
    """

    rows: int
    steps: int
    tokens_per_second: float
    milliseconds: float
    distinct: float
    memory_gib: float
    optimizer: str
    share_of_peak: float

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


class Text:
    """Streams to train on: of a corpus, or made up."""

    def __init__(self, corpus: Corpus | None, n_words: int) -> None:
        if corpus is not None:
            self.tokens, self.documents = corpus.tokens(), corpus.documents()
            self.chars, self.n_words = corpus.chars, corpus.n_words
        else:
            self.tokens, self.documents = _zipf_text(n_words)
            self.chars, self.n_words = _made_up_words(n_words), n_words

    def batches(self, config: RunConfig, max_width: int) -> Iterator[Batch]:
        """Give batches without end."""
        columns = columns_of(self.chars, max_width)
        streams = Streams(
            self.tokens,
            self.documents,
            rows=config.step.rows,
            steps=config.step.steps,
            restart=config.restart,
        )
        for stream in streams:
            yield make_batch(stream, columns, self.n_words)


def measure(config: RunConfig, text: Text, device: torch.device, *, rounds: int = 40) -> Speed:
    """Time whole training steps: encoder, LSTMs, sampled softmax, clipping, optimiser."""
    torch.manual_seed(0)
    bilm = BiLM(config.model).to(device)
    head = LMHead(text.n_words, config.model.lstm.projection_dim).to(device)
    assert config.model.char_cnn is not None
    supply = text.batches(config, config.model.char_cnn.max_width)
    batches = [next(supply) for _ in range(8)]
    if device.type == "cuda":
        from elmokit.train.fast import FastStep

        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        step: TrainStep = FastStep(bilm, head, text.chars, config.step, config.optimizer)
        widest = {
            c: max(dict(b.groups).get(c, 0) for b in batches) for b in batches for c, _ in b.groups
        }
        widest[0] = max(len(b.words) for b in batches)
        step.set_capacity({c: -(-n // 128) * 128 for c, n in widest.items()})
    else:
        step = PlainStep(bilm, head, text.chars, config.step, config.optimizer)
    for number in range(3):
        step(batches[number % len(batches)], number, 1e-3)
    times = []
    _wait(device)
    for number in range(rounds):
        before = time.perf_counter()
        step(batches[number % len(batches)], number, 1e-3)
        if number % 4 == 3:  # in fours: a training run does not wait for each step either
            _wait(device)
        times.append(time.perf_counter() - before)
    fours = np.array(times).reshape(-1, 4).sum(axis=1) / 4
    seconds = float(np.median(fours))
    distinct = float(np.mean([len(b.types) for b in batches]))
    on_gpu = device.type == "cuda"
    work = _work(config, distinct)
    return Speed(
        rows=config.step.rows,
        steps=config.step.steps,
        tokens_per_second=round(config.tokens_per_step / seconds, 1),
        milliseconds=round(seconds * 1000, 3),
        distinct=round(distinct),
        memory_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2) if on_gpu else 0.0,
        optimizer=config.optimizer.kind,
        share_of_peak=round(work / seconds / product_speed(device), 3) if on_gpu else 0.0,
    )


def product_speed(device: torch.device) -> float:
    """Measure floating-point operations a second of a large bfloat16 product."""
    n = 8192
    a, b = (torch.randn(n, n, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    _wait(device)
    before = time.perf_counter()
    for _ in range(10):
        a @ b
    _wait(device)
    return 10 * 2 * n**3 / (time.perf_counter() - before)


def _work(config: RunConfig, distinct: float) -> float:
    """Floating-point operations of the products of a step, forward and backward."""
    lstm, cnn = config.model.lstm, config.model.char_cnn
    assert cnn is not None
    h, d, f = lstm.dim, lstm.projection_dim, cnn.n_filters
    tokens = config.tokens_per_step
    layers = 2 * lstm.n_layers * (2 * d * 4 * h + h * d) * tokens
    softmax = 2 * tokens * (config.step.negatives + 1) * d
    words = distinct * (
        2 * cnn.n_highway * f * f + f * d + 14 * cnn.max_width * cnn.embedding_dim * f
    )
    return 3 * 2 * (layers + softmax + words)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _zipf_text(n_words: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    ranks = np.arange(1, n_words - 2)
    low, high = 0.5, 2.0
    for _ in range(30):  # the larger the exponent, the fewer distinct words
        exponent = (low + high) / 2
        p = (ranks + 2.7) ** -exponent
        p /= p.sum()
        distinct = -np.expm1(_DRAWN * np.log1p(-p)).sum()
        low, high = (exponent, high) if distinct > _DISTINCT else (low, exponent)
    n = 40_000_000
    tokens = (rng.choice(n_words - 3, n, p=p) + 3).astype(np.uint32)
    tokens[24::25] = END
    return tokens, np.arange(0, n + 1, 500, dtype=np.int64)


def _made_up_words(n_words: int) -> NDArray[np.uint16]:
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.normal(8.0, 3.0, n_words).round(), 1, 30).astype(int)
    letters = rng.integers(97, 123, (n_words, 30), dtype=np.uint8)
    words = [letters[i, :n].tobytes().decode() for i, n in enumerate(lengths)]
    words[:3] = ["<S>", "</S>", "<UNK>"]
    return char_ids_table(words).astype(np.uint16)
