"""How fast a machine embeds: tokens per second by batch size, precision and threads.

    steady    new text, after the token cache has seen `tokens` tokens
    known     the same text again: all of its words are in the cache

Each combination of precision and threads is a process of its own, because only a fresh process
knows its load time and its peak memory. All processes are timed in turn, round by round on the same
sentences, and medians are reported, so that other load on the machine affects all of them alike.
Sentence boundaries are not counted as tokens.
"""

from __future__ import annotations

import hashlib
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain, count
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
import torch
from pydantic import Field, model_validator

import elmokit
from elmokit.embed.model import ElmoModel, load
from elmokit.embed.precision import PRECISIONS, check_precision
from elmokit.errors import DataError, ElmoError
from elmokit.model.bilm import BiLM
from elmokit.presets import preset as shape
from elmokit.progress import LogFn, no_log
from elmokit.settings import Count, Expected, Settings, Size, invalid
from elmokit.sources import modeldir
from elmokit.text.lines import read_lines
from elmokit.text.sentences import split_sentences
from elmokit.text.synthetic import make_sentences
from elmokit.text.tokenize import words

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "corpus.txt"
_FIRST_TOKENS = 20
_INSTRUCTION_SETS = ("avx2", "avx512f", "avx512_vnni", "amx_int8", "amx_bf16", "asimd", "sve")

Row = dict[str, Any]
Sizes = Annotated[tuple[Size, ...], Expected("integers >= 1, such as 1,32,64")]


class BenchSettings(Settings):
    """What to measure.

    Attributes:
        model: A model as `elmokit.load` takes it; None is the bundled one.
        weights: The HDF5 file, if `model` is an options.json.
        preset: A shape with random weights instead of a model.
        batches: Sentences per call.
        precisions: Empty: all that this model has on this machine.
        threads: Numbers of CPU threads; empty: torch's default.
        device: Where to run.
        tokens: Tokens read before the steady state counts, and tokens per batch size in it.
        rounds: How often each cell is measured.
        text: A text file; None is the example text.
        lengths: Instead of the cells: tokens of one run each, to show that time grows linearly.
        long_sentence: With `lengths`: tokens of one very long sentence.
    """

    model: str | None = None
    weights: str | None = None
    preset: str | None = None
    batches: Annotated[Sizes, Field(min_length=1)] = (1, 32, 64, 128)
    precisions: tuple[str, ...] = ()
    threads: Sizes = ()
    device: str = "auto"
    tokens: Count = 20_000
    rounds: Count = 5
    text: str | None = None
    lengths: Annotated[tuple[Count, ...], Expected("integers >= 1, such as 1000,10000")] = ()
    long_sentence: Count = 10_000

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.model is not None and self.preset is not None:
            raise invalid("preset", self.preset, "no preset where a model is given")
        return self


# -------------------------------------------------------------------------------------------- text


@dataclass(frozen=True)
class BenchText:
    """Sentences in their natural order: lists of tokens, none empty."""

    name: str
    sentences: list[list[str]]

    def describe(self) -> Row:
        """Return what a report says about the text."""
        tokens = [token for sentence in self.sentences for token in sentence]
        joined = "\n".join("\t".join(sentence) for sentence in self.sentences)
        return {
            "name": self.name,
            "sentences": len(self.sentences),
            "tokens": len(tokens),
            "distinct_tokens": len(set(tokens)),
            "tokens_per_sentence": round(len(tokens) / len(self.sentences), 1),
            "sha256": hashlib.sha256(joined.encode("utf-8", "replace")).hexdigest(),
        }


def read_text(path: str | Path | None, tokens: int) -> BenchText:
    """Read about `tokens` tokens, or fewer if the file has no more.

    Args:
        path: A text file, a paragraph per line. None: examples/corpus.txt, or made-up words where
            the package was installed without it.
        tokens: How many are needed.
    """
    sentences = list(_until(_sentences(path), tokens))
    if not sentences:
        raise DataError(f"{path} has no sentences. Expected a text file, a paragraph per line.")
    return BenchText(Path(path or EXAMPLE).name, sentences)


def _sentences(path: str | Path | None) -> Iterator[list[str]]:
    if path is None and not EXAMPLE.is_file():
        yield from make_sentences()
        return
    for line in read_lines([path or EXAMPLE]):
        for start, end in split_sentences(line.text):
            if sentence := words(line.text[start:end]):
                yield sentence


def _until(sentences: Iterable[list[str]], tokens: int) -> Iterator[list[str]]:
    """Yield sentences until they have `tokens` tokens."""
    done = 0
    for sentence in sentences:
        yield sentence
        done += len(sentence)
        if done >= tokens:
            return


class Supply:
    """Gives out a text piece by piece, each piece new, and starts over at its end."""

    def __init__(self, sentences: Sequence[list[str]]) -> None:
        self._sentences = sentences
        self._next = 0
        self.rewound = 0

    def take(self, tokens: int, *, batch: int = 1) -> list[list[str]]:
        """Return the next whole batches that have at least `tokens` tokens."""
        piece: list[list[str]] = []
        while tokens > 0 or len(piece) % batch:
            if self._next == len(self._sentences):
                self._next, self.rewound = 0, self.rewound + 1
            piece.append(self._sentences[self._next])
            tokens -= len(piece[-1])
            self._next += 1
        return piece


# -------------------------------------------------------------- functions of a measuring process

_loaded: list[ElmoModel] = []


def _load(
    settings: BenchSettings, source: str | None, setup: Setup, first: list[str]
) -> tuple[Row, Row, str]:
    """Load the model of this process and compute the first vector.

    Returns:
        How long it took, what the model is, and the device.
    """
    if setup.threads is not None:
        torch.set_num_threads(setup.threads)
    begin = time.perf_counter()
    model = load(source, settings.weights, settings.device, setup.precision)
    loaded = time.perf_counter()
    _loaded.append(model)
    model.embed([first])
    figures = {
        "load_s": round(loaded - begin, 3),
        "first_vector_ms": round((time.perf_counter() - loaded) * 1000, 2),
        "loaded_gib": _memory()["rss_gib"],
    }
    lstm, where = model.config.lstm, model.device
    described = {
        "shape": f"{lstm.n_layers} x {lstm.dim}/{lstm.projection_dim}",
        "parameters": sum(p.numel() for p in model.bilm.parameters()),
    }
    on_gpu = where.type == "cuda"
    return figures, described, torch.cuda.get_device_name(where) if on_gpu else "CPU"


def _time(sentences: Iterable[list[str]], batch: int | None) -> Row:
    """Embed sentences, `batch` per call, or as a stream that chooses its batches."""
    (model,) = _loaded
    hits, misses = model.cache.hits, model.cache.misses
    begin = time.perf_counter()
    if batch is None:
        tokens = sum(len(vectors.tokens) for vectors in model.stream(sentences))
    else:
        rows = list(sentences)
        pieces = (rows[start : start + batch] for start in range(0, len(rows), batch))
        tokens = sum(len(vectors.tokens) for piece in pieces for vectors in model.embed(piece))
    return {
        "seconds": time.perf_counter() - begin,
        "tokens": tokens,
        "hits": model.cache.hits - hits,
        "misses": model.cache.misses - misses,
    }


def _time_file(path: str | Path | None, tokens: int) -> Row:
    """Stream so many tokens of a text, read on the way; a short text repeats."""
    _loaded[0].cache.clear()
    endless = chain.from_iterable(_sentences(path) for _ in count())
    return _time(_until(endless, tokens), None)


def _latency(sentence: list[str], times: int) -> list[float]:
    return [_time([sentence], 1)["seconds"] for _ in range(times)]


def _memory() -> Row:
    """Return the memory that this process uses, and its peak."""
    status = Path("/proc/self/status")
    if status.is_file():
        lines = dict(line.split(":", 1) for line in status.read_text().splitlines() if ":" in line)
        used, peak = (int(lines[key].split()[0]) * 1024 for key in ("VmRSS", "VmHWM"))
    else:
        import resource  # not on Windows

        unit = 1 if sys.platform == "darwin" else 1024
        used = peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    memory = {"rss_gib": round(used / 2**30, 3), "peak_gib": round(peak / 2**30, 3)}
    if torch.cuda.is_available():
        memory["device_peak_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 3)
    return memory


# ------------------------------------------------------------------------------------ measurements


class Setup(NamedTuple):
    """What a measuring process uses."""

    precision: str
    threads: int | None


class _Process:
    """A process that keeps its model and runs the functions above, one at a time."""

    def __init__(self, stack: ExitStack) -> None:
        self._pool = stack.enter_context(ProcessPoolExecutor(1, get_context("spawn")))

    def run(self, function: Callable[..., Any], *values: Any) -> Any:
        try:
            return self._pool.submit(function, *values).result()
        except BrokenProcessPool:
            raise ElmoError(
                "A measuring process was killed, most often because memory ran out. "
                "Measure one precision at a time, or a smaller batch."
            ) from None


def measure(settings: BenchSettings, log: LogFn = no_log) -> Row:
    """Measure what `settings` asks for.

    Args:
        settings: What to measure.
        log: Called with a line whenever a part of the work is finished.

    Returns:
        A report of JSON values. `loads` has a row per process, `cells` a row per process and batch
        size.
    """
    for name in settings.precisions:
        check_precision(name)
    text = read_text(settings.text, _tokens_needed(settings))
    report: Row = {
        "what": f"tokens/s of embedding new text after {settings.tokens:,} tokens, and of known "
        f"text; medians of {settings.rounds} rounds in turn",
        "model": {"name": settings.preset or settings.model or "the bundled model"},
        "machine": machine(),
        "text": text.describe(),
        "settings": settings.to_dict() | {"text": settings.text and Path(settings.text).name},
        "notes": [],
    }
    with ExitStack() as stack:
        source = settings.model
        if settings.preset is not None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="elmo-bench-"))
            source = str(save_random(settings.preset, Path(folder) / settings.preset))
        first = _sentence_of(text, _FIRST_TOKENS)
        processes = _start(settings, source, first, report, stack)
        log(f"loaded: {', '.join(setup.precision for setup in processes)}")
        if settings.lengths:
            report["lengths"] = _lengths(processes, settings, log)
            report["long_sentence"] = _long_sentence(processes, settings, text)
        else:
            report["cells"] = _cells(processes, settings, Supply(text.sentences), report["notes"])
            for row, process in zip(report["loads"], processes.values(), strict=True):
                seconds = process.run(_latency, first, 100)
                row["sentence_ms"] = round(statistics.median(seconds) * 1000, 3)
                row["sentence_p99_ms"] = round(float(np.percentile(seconds, 99)) * 1000, 3)
        for row, process in zip(report["loads"], processes.values(), strict=True):
            row |= process.run(_memory)
    return report


def save_random(preset: str, folder: Path, seed: int = 0) -> Path:
    """Write a model of a shape with random weights."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        bilm = BiLM(shape(preset))
    modeldir.save(modeldir.ModelParts(bilm, metadata={"name": f"random {preset}"}), folder)
    return folder


def machine() -> Row:
    """Describe what speed depends on in this machine, without its name."""
    flags: set[str] = set()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text(errors="replace").splitlines()
        described = next((line for line in lines if line.startswith(("flags", "Features"))), "")
        flags = set(described.split())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores,
        "instruction_sets": [name for name in _INSTRUCTION_SETS if name in flags],
        "versions": {
            "elmokit": elmokit.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }


Processes = dict[Setup, _Process]


def _start(
    settings: BenchSettings, source: str | None, first: list[str], report: Row, stack: ExitStack
) -> Processes:
    """Start and load the processes, one after the other."""
    processes: Processes = {}
    report["loads"] = []
    for precision in dict.fromkeys(settings.precisions or PRECISIONS):
        for threads in dict.fromkeys(settings.threads or (None,)):
            setup, process = Setup(precision, threads), _Process(stack)
            try:
                figures, model, device = process.run(_load, settings, source, setup, first)
            except ElmoError as error:
                if settings.precisions or precision == "exact":
                    raise
                report["notes"].append(f"{precision} is left out: {error}")
                continue
            processes[setup] = process
            report["loads"].append(setup._asdict() | figures)
            report["model"] |= model
            report["machine"]["device"] = device
    return processes


def _cells(
    processes: Processes, settings: BenchSettings, supply: Supply, notes: list[str]
) -> list[Row]:
    """Time every batch size in every process, round by round, on new text and on known text."""
    filling = supply.take(settings.tokens)
    for process in processes.values():
        process.run(_time, filling, max(settings.batches))
    timed: dict[tuple[Setup, int], list[tuple[Row, Row]]] = {
        (setup, batch): [] for setup in processes for batch in settings.batches
    }
    for number in range(settings.rounds):
        for batch in settings.batches:
            piece = supply.take(settings.tokens // settings.rounds + 1, batch=batch)
            at = number % len(processes)  # another one begins in each round
            for setup in [*processes][at:] + [*processes][:at]:
                new, known = (processes[setup].run(_time, piece, batch) for _ in range(2))
                timed[setup, batch].append((new, known))
    if supply.rewound:
        notes.append("The text was too short and started over: the cache knew all of its words.")
    return [
        {**setup._asdict(), "batch": batch}
        | _rates([new for new, _ in rounds])
        | {"known_tokens_per_second": _rates([known for _, known in rounds])["tokens_per_second"]}
        for (setup, batch), rounds in timed.items()
    ]


def _lengths(processes: Processes, settings: BenchSettings, log: LogFn) -> list[Row]:
    """Time runs of so many tokens each."""
    rows = []
    for setup, process in processes.items():
        for tokens in sorted(settings.lengths):
            timed = process.run(_time_file, settings.text, tokens)
            rows.append(setup._asdict() | _rates([timed]) | process.run(_memory))
            log(f"{setup.precision}, {timed['tokens']:,} tokens: {timed['seconds']:.1f} s")
    return rows


def _long_sentence(processes: Processes, settings: BenchSettings, text: BenchText) -> list[Row]:
    """Compare the time per token of one very long sentence with that of a hundredth of it."""
    long = settings.long_sentence
    short = max(1, long // 100)
    tokens = _sentence_of(text, long)
    pieces = [tokens[i : i + short] for i in range(0, min(long, 20 * short), short)]
    rows = []
    for setup, process in processes.items():
        process.run(_time, [tokens], 1)  # so that the cache knows all words
        cost = []
        for sentences in ([tokens], pieces):
            timed = [process.run(_time, sentences, 1) for _ in range(min(3, settings.rounds))]
            cost.append(1000 / _rates(timed)["tokens_per_second"])
        rows.append(
            setup._asdict()
            | {"tokens": long, "ms_per_token": round(cost[0], 4), "short_tokens": short}
            | {"short_ms_per_token": round(cost[1], 4), "ratio": round(cost[0] / cost[1], 3)}
        )
    return rows


def _rates(timed: Sequence[Row]) -> Row:
    rates = [row["tokens"] / row["seconds"] for row in timed]
    hits, misses = (sum(row[key] for row in timed) for key in ("hits", "misses"))
    return {
        "tokens_per_second": round(statistics.median(rates), 1),
        "slowest": round(min(rates), 1),
        "fastest": round(max(rates), 1),
        "tokens": sum(row["tokens"] for row in timed),
        "seconds": round(sum(row["seconds"] for row in timed), 3),
        "hit_rate": round(hits / max(1, hits + misses), 4),
    }


def _sentence_of(text: BenchText, length: int) -> list[str]:
    """Return one sentence of `length` tokens: running text, repeated if it is short."""
    tokens = [token for sentence in text.sentences for token in sentence]
    return (tokens * (length // len(tokens) + 1))[:length]


def _tokens_needed(settings: BenchSettings) -> int:
    if settings.lengths:
        return settings.long_sentence
    sentence = 60  # tokens, more than most: a piece consists of whole batches
    pieces = sum(settings.tokens // settings.rounds + sentence * b for b in settings.batches)
    return settings.tokens + 2 * settings.rounds * pieces
