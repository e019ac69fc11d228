"""Measure the speed of embedding by batch size, precision and number of threads.

Before the measurements, `tokens` tokens are embedded to fill the token cache. Each later part of
the text is then embedded twice: first as new text, and again as known text, whose words are all in
the cache.

In each round, the same sentences are embedded with all combinations of precision and number of
threads, so that other load on the machine affects all combinations similarly. The median over all
rounds is reported. Sentence boundaries are not counted as tokens.
"""

from __future__ import annotations

import hashlib
import platform
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import torch
from pydantic import Field, model_validator

import elmokit
from elmokit.embed.loading import load
from elmokit.embed.model import ElmoModel
from elmokit.embed.precision import PRECISIONS
from elmokit.errors import ConfigError, DataError, ElmoError
from elmokit.model.bilm import BiLM
from elmokit.parallel import available_cores
from elmokit.presets import preset as preset_config
from elmokit.progress import LogFn, no_log, plural
from elmokit.settings import Count, Expected, Settings, Size
from elmokit.sources.modeldir import ModelParts
from elmokit.text.lines import read_lines
from elmokit.text.sentences import split_sentences
from elmokit.text.synthetic import make_sentences
from elmokit.text.tokenize import words

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "corpus.txt"
_LATENCY_TOKENS = 20
_LATENCY_CALLS = 100

Row = dict[str, Any]
Sizes = tuple[Size, ...]
_POSITIVE = Expected("integers >= 1")


class BenchSettings(Settings):
    """What to measure.

    Attributes:
        model: A model, as in `elmokit.load`. Default: the bundled model.
        weights: The HDF5 weights file, if it is not in the same directory as `options.json`.
        preset: A preset to use with random weights, instead of a model.
        batches: Numbers of sentences per call.
        precisions: The precisions. Default: all precisions that the model supports on this machine.
        threads: Numbers of CPU threads. Default: torch's default.
        device: The device, as in `elmokit.load`.
        tokens: Number of tokens to embed before the measurements. About the same number is then
            measured for each batch size.
        rounds: Number of measurements per configuration.
        text: A text file. Default: the example text.
    """

    model: str | None = None
    weights: str | None = None
    preset: str | None = None
    batches: Annotated[Sizes, Field(min_length=1), _POSITIVE] = (1, 32, 64, 128)
    precisions: tuple[str, ...] = ()
    threads: Annotated[Sizes, _POSITIVE] = ()
    device: str = "auto"
    tokens: Count = 20_000
    rounds: Count = 5
    text: str | None = None

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if self.model is not None and self.preset is not None:
            raise ConfigError("model and preset cannot be combined. Omit one of them.")
        return self


# -------------------------------------------------------------------------------------------- text


@dataclass(frozen=True)
class BenchText:
    """Nonempty tokenized sentences, in text order."""

    name: str
    sentences: list[list[str]]

    def describe(self) -> Row:
        """Return a description for a report."""
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
    """Read complete sentences with about `tokens` tokens in total, or fewer if the text is shorter.

    Args:
        path: A text file with one paragraph per line. None selects examples/corpus.txt or, if that
            file is not installed, synthetic sentences.
        tokens: Approximate number of tokens.
    """
    sentences: list[list[str]] = []
    for sentence in _sentences(path):
        sentences.append(sentence)
        tokens -= len(sentence)
        if tokens <= 0:
            break
    if not sentences:
        raise DataError(
            f"{path} contains no sentences. Expected a text file with one paragraph per line."
        )
    return BenchText(Path(path or EXAMPLE).name, sentences)


def _sentences(path: str | Path | None) -> Iterator[list[str]]:
    if path is None and not EXAMPLE.is_file():
        yield from make_sentences()
        return
    for line in read_lines([path or EXAMPLE]):
        for sentence in split_sentences(line.text):
            if tokens := words(sentence):
                yield tokens


class SentenceSupply:
    """An endless supply of sentences, which starts over at the end of the text.

    Attributes:
        n_restarts: Number of times that the text was repeated.
    """

    def __init__(self, sentences: Sequence[list[str]]) -> None:
        self._sentences = sentences
        self._next = 0
        self.n_restarts = 0

    def take(self, tokens: int, *, batch: int = 1) -> list[list[str]]:
        """Return the next sentences: complete batches with at least `tokens` tokens in total."""
        part: list[list[str]] = []
        while tokens > 0 or len(part) % batch:
            if self._next == len(self._sentences):
                self._next, self.n_restarts = 0, self.n_restarts + 1
            part.append(self._sentences[self._next])
            tokens -= len(part[-1])
            self._next += 1
        return part


# ------------------------------------------------------------------------------------ measurements


class Setup(NamedTuple):
    """A combination of precision and number of threads, with its own model and token cache."""

    precision: str
    threads: int


Models = dict[Setup, ElmoModel]


def measure(settings: BenchSettings, log: LogFn = no_log) -> Row:
    """Measure the speed of embedding.

    Args:
        settings: What to measure.
        log: Callback for messages.

    Returns:
        A report as JSON values. `loads` contains a row for each precision and number of threads,
        and `cells` contains a row for each precision, number of threads and batch size.
    """
    text = read_text(settings.text, _tokens_needed(settings))
    report: Row = {
        "what": f"tokens/s for new text (after {plural(settings.tokens, 'token')}) and for known "
        f"text; medians of {plural(settings.rounds, 'round')}",
        "model": {"name": settings.preset or settings.model or "the bundled model"},
        "machine": machine(),
        "text": text.describe(),
        "settings": settings.to_dict() | {"text": settings.text and Path(settings.text).name},
        "notes": [],
    }
    threads = torch.get_num_threads()
    try:
        models = _load(settings, text, report)
        log(f"Loaded the model: {', '.join(dict.fromkeys(setup.precision for setup in models))}")
        report["cells"] = _time_batches(models, settings, text, report["notes"])
    finally:
        torch.set_num_threads(threads)
    return report | {"peak_gib": _peak_gib()}


def _load(settings: BenchSettings, text: BenchText, report: Row) -> Models:
    """Load a model for each combination of precision and threads, and measure its latency."""
    models: Models = {}
    report["loads"] = []
    sentence = [token for s in text.sentences for token in s][:_LATENCY_TOKENS]
    threads = settings.threads or (torch.get_num_threads(),)
    for setup in (Setup(p, n) for p in settings.precisions or PRECISIONS for n in threads):
        torch.set_num_threads(setup.threads)
        begin = time.perf_counter()
        try:
            model = models[setup] = _load_model(settings, setup.precision)
        except ElmoError as error:
            if settings.precisions or setup.precision == "exact":
                raise
            report["notes"].append(f"{setup.precision} was not measured: {error}")
            continue
        load_seconds = time.perf_counter() - begin
        seconds = [_time(setup, model, [sentence], 1)["seconds"] for _ in range(_LATENCY_CALLS)]
        figures = {
            "load_s": round(load_seconds, 3),
            "first_vector_ms": round(seconds[0] * 1000, 2),
            "sentence_ms": round(statistics.median(seconds) * 1000, 3),
        }
        report["loads"].append(setup._asdict() | figures)
    lstm, on_gpu = model.config.lstm, model.device.type == "cuda"
    report["machine"]["device"] = torch.cuda.get_device_name(model.device) if on_gpu else "CPU"
    report["model"] |= {
        "shape": f"{lstm.n_layers} x {lstm.dim}/{lstm.projection_dim}",
        "parameters": sum(p.numel() for p in model.bilm.parameters()),
    }
    return models


def _load_model(settings: BenchSettings, precision: str) -> ElmoModel:
    if settings.preset is None:
        return load(settings.model, settings.weights, settings.device, precision, "torch")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        bilm = BiLM(preset_config(settings.preset))
    return ElmoModel(ModelParts(bilm), device=settings.device, precision=precision)


def _time(setup: Setup, model: ElmoModel, sentences: list[list[str]], batch: int) -> Row:
    """Measure the time to embed sentences, `batch` sentences per call."""
    torch.set_num_threads(setup.threads)
    hits, misses = model.cache.hits, model.cache.misses
    begin = time.perf_counter()
    calls = (sentences[first : first + batch] for first in range(0, len(sentences), batch))
    tokens = sum(len(vectors) for call in calls for vectors in model.embed(call))
    return {
        "seconds": time.perf_counter() - begin,
        "tokens": tokens,
        "hits": model.cache.hits - hits,
        "misses": model.cache.misses - misses,
    }


def _time_batches(
    models: Models, settings: BenchSettings, text: BenchText, notes: list[str]
) -> list[Row]:
    """Measure all batch sizes with all setups on new text and on known text, in rounds."""
    supply = SentenceSupply(text.sentences)
    warm_up = supply.take(settings.tokens)
    for setup, model in models.items():
        _time(setup, model, warm_up, max(settings.batches))
    new: dict[tuple[Setup, int], list[Row]] = defaultdict(list)
    known: dict[tuple[Setup, int], list[Row]] = defaultdict(list)
    for number in range(settings.rounds):
        for batch in settings.batches:
            sentences = supply.take(settings.tokens // settings.rounds + 1, batch=batch)
            first = number % len(models)  # each round starts with a different setup
            for setup in [*models][first:] + [*models][:first]:
                for timings in (new, known):
                    timings[setup, batch].append(_time(setup, models[setup], sentences, batch))
    if supply.n_restarts:
        notes.append(
            "The text was too short and was repeated. The words of repeated sentences were already "
            "cached, so the speed for new text is overestimated."
        )
    return [
        setup._asdict()
        | {"batch": batch, **_rates(new[setup, batch])}
        | {"known_tokens_per_second": _rates(known[setup, batch])["tokens_per_second"]}
        for setup in models
        for batch in settings.batches
    ]


def _rates(timings: Sequence[Row]) -> Row:
    rates = [row["tokens"] / row["seconds"] for row in timings]
    hits, misses = (sum(row[key] for row in timings) for key in ("hits", "misses"))
    return {
        "tokens_per_second": round(statistics.median(rates), 1),
        "slowest": round(min(rates), 1),
        "fastest": round(max(rates), 1),
        "tokens": sum(row["tokens"] for row in timings),
        "seconds": round(sum(row["seconds"] for row in timings), 3),
        "hit_rate": round(hits / max(1, hits + misses), 4),
    }


def _tokens_needed(settings: BenchSettings) -> int:
    """Return a generous estimate of the number of tokens that all measurements need."""
    longest = 60  # tokens; few sentences are longer
    # Each part is extended to complete batches.
    per_round = sum(settings.tokens // settings.rounds + longest * b for b in settings.batches)
    return settings.tokens + 2 * settings.rounds * per_round


def _peak_gib() -> float:
    """Return the peak memory usage of this process in GiB."""
    import resource  # not on Windows

    unit = 1 if sys.platform == "darwin" else 1024
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 2**30, 3)


def machine() -> Row:
    """Return the properties of this machine that affect the speed."""
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": available_cores(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "versions": {
            "elmokit": elmokit.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        },
    }
