"""How fast a machine embeds: tokens a second by batch, precision and threads.

Three things are kept apart that are easily mixed up:

    cold      the cache of tokens is empty: the first words of a text
    steady    the cache has seen `tokens` tokens, then comes text it has not seen
    load      a fresh process: loading, the first vector after it, the peak of memory

Every combination of precision and threads is a process of its own (`bench_child`). All of them are
timed in turn, round by round on the same sentences, and medians are reported, so that what else the
machine does falls on all alike. A token is a token of the text; sentence boundaries do not count.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.bench.child import Child, ChildError
from elmokit.embed.bench.report import BenchReport, BenchSettings, Setup, machine
from elmokit.embed.bench.text import BenchText, Supply, read_text, sentence_of
from elmokit.telling import Tell, silent

FIRST_TOKENS = 20
_COLD_SHARE = 10  # a cold piece is a tenth of the steady tokens: it lasts only so long
_ERROR_SENTENCES = 64
_LIMIT = 7200.0  # seconds for one answer: a million tokens of the original size on a slow machine


def measure(settings: BenchSettings, tell: Tell = silent) -> BenchReport:
    """Measure all that `settings` asks for.

    Args:
        settings: What to measure.
        tell: Called with a line when something was finished.
    """
    text = read_text(settings.text, _tokens_needed(settings))
    first = sentence_of(text.sentences, FIRST_TOKENS)
    with ExitStack() as stack:
        source = settings.model
        if settings.preset is not None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elmo-bench-")))
            source = str(make_random(settings.preset, folder / settings.preset, settings.seed))
        bench = _Bench(settings, source, text, tell, stack)
        bench.load(first)
        if settings.lengths:
            bench.lengths()
        else:
            bench.errors()
            bench.cells(first)
        bench.memory()
        return bench.report


def make_random(preset: str, folder: Path, seed: int) -> Path:
    """Write a model of a shape with random weights."""
    import torch

    from elmokit.model.bilm import BiLM
    from elmokit.presets import preset as shape
    from elmokit.sources import modeldir

    config = shape(preset)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        bilm = BiLM(config)
    modeldir.save(modeldir.ModelParts(bilm, metadata={"name": f"random {preset}"}), folder)
    return folder


class _Bench:
    """The processes of one measurement and what they have said so far."""

    def __init__(
        self,
        settings: BenchSettings,
        source: str | None,
        text: BenchText,
        tell: Tell,
        stack: ExitStack,
    ) -> None:
        self.settings, self.text, self.tell = settings, text, tell
        self._source, self._stack = source, stack
        self._children: dict[Setup, Child] = {}
        self._supply = Supply(text.sentences)
        self._on_gpu = False
        values = asdict(settings) | {"text": None if settings.text is None else settings.text.name}
        name = settings.preset or settings.model or "the model of the package"
        self.report = BenchReport(
            what="tokens/s of embedding; cold: token cache empty; steady: new text after "
            f"{settings.tokens:,} tokens; medians of {settings.rounds} rounds in turn",
            model={"name": name, "random_weights": settings.preset is not None},
            machine=machine(),
            text=text.describe(),
            settings=values,
        )

    # ------------------------------------------------------------------------------------ loads

    def load(self, first: list[str]) -> None:
        """Load each set-up in fresh processes, in turn; the last process of each stays."""
        found: dict[Setup, list[dict[str, float]]] = {setup: [] for setup in self._setups()}
        for number in range(self.settings.loads):
            for setup in list(found):
                child = Child(threads=setup.threads, limit=_LIMIT)
                try:
                    figures = self._load_once(child, setup, first)
                except ChildError as error:
                    child.close()
                    if self.settings.precisions or setup.precision == "exact":
                        raise
                    del found[setup]
                    self.report.notes.append(f"{setup.precision} left out: {error}")
                    continue
                except BaseException:
                    child.close()
                    raise
                found[setup].append(figures)
                if number + 1 < self.settings.loads:
                    child.close()
                else:
                    self._children[setup] = self._stack.enter_context(child)
        for setup, figures_of in found.items():
            row = {key: _median([f[key] for f in figures_of]) for key in figures_of[0]}
            self.report.loads.append({**setup._asdict(), **row})
        known = next(iter(self._children.values())).ask("describe")
        self._on_gpu = known["on_gpu"]
        self.report.machine |= {"device": known["device"], "versions": known["versions"]}
        self.report.model |= {"parameters": known["parameters"], "shape": known["shape"]}
        self.tell(f"loaded {len(self._children)} set-ups, {self.settings.loads} times each")

    def _setups(self) -> list[Setup]:
        from elmokit.embed.precision import PRECISIONS, check_precision

        precisions = self.settings.precisions or PRECISIONS
        for name in precisions:
            check_precision(name)
        threads: Sequence[int | None] = self.settings.threads or (None,)
        return [Setup(p, t) for p in dict.fromkeys(precisions) for t in dict.fromkeys(threads)]

    def _load_once(self, child: Child, setup: Setup, first: list[str]) -> dict[str, float]:
        loaded = child.ask(
            "load",
            model=self._source,
            weights=self.settings.weights,
            precision=setup.precision,
            device=self.settings.device,
            threads=setup.threads,
        )
        seconds = child.ask("latency", sentence=first, times=1)["seconds"][0]
        return {
            "import_s": round(loaded["import_s"], 3),
            "load_s": round(loaded["load_s"], 3),
            "first_vector_ms": round(seconds * 1000, 2),
            "loaded_gib": loaded["rss_gib"],
        }

    # ------------------------------------------------------------------------------------ cells

    def cells(self, first: list[str]) -> None:
        """Time every batch size with every set-up: cold, then warm up, then steady."""
        batches, rounds = self.settings.batches, self.settings.rounds
        cold = self._rounds(max(1, self.settings.tokens // _COLD_SHARE), cold=True)
        self.tell("cold cells measured")
        filling = self._supply.take(self.settings.tokens)
        for child in self._children.values():
            child.ask("time", sentences=filling, batch=max(batches), cold=True)
        steady = self._rounds(-(-self.settings.tokens // rounds), cold=False)
        if self._supply.rewound:
            self.report.notes.append(
                "The text was too short and began again: the cache knew all of its words."
            )
        for setup in self._children:
            for batch in batches:
                self.report.cells.append(
                    {
                        **setup._asdict(),
                        "batch": batch,
                        **_rates(steady[setup, batch]),
                        **{f"cold_{k}": v for k, v in _rates(cold[setup, batch]).items()},
                    }
                )
        self.tell("steady cells measured")
        self._latency(first)
        if self._on_gpu:
            self._network()

    def _rounds(self, tokens: int, *, cold: bool) -> dict[tuple[Setup, int], list[dict[str, Any]]]:
        found: dict[tuple[Setup, int], list[dict[str, Any]]] = {
            (setup, batch): [] for setup in self._children for batch in self.settings.batches
        }
        for number in range(self.settings.rounds):
            for batch in self.settings.batches:
                piece = self._supply.take(tokens, batch=batch)
                for setup in _turned(list(self._children), number):
                    child = self._children[setup]
                    said = child.ask("time", sentences=piece, batch=batch, cold=cold)
                    found[setup, batch].append(said)
        return found

    def _latency(self, first: list[str]) -> None:
        times = 200 if self._on_gpu else max(5, 2 * self.settings.rounds)
        for row in self.report.loads:
            child = self._children[Setup(row["precision"], row["threads"])]
            seconds = child.ask("latency", sentence=first, times=times)["seconds"]
            row["sentence_ms"] = round(statistics.median(seconds) * 1000, 3)
            row["sentence_p99_ms"] = round(float(np.percentile(seconds, 99)) * 1000, 3)

    def _network(self) -> None:
        """Time the network alone and the whole way from raw text, for a GPU."""
        for batch in self.settings.batches:
            piece = self._supply.take(1, batch=8 * batch)
            raw = [" ".join(row) for row in piece]
            for setup in self._children:
                child = self._children[setup]
                said = child.ask("parts", sentences=piece, batch=batch, times=self.settings.rounds)
                seconds = {name: statistics.median(s) for name, s in said["seconds"].items()}
                whole = [
                    child.ask("time", sentences=raw, batch=batch, stream=True)
                    for _ in range(self.settings.rounds)
                ]
                self.report.network.append(
                    {
                        **setup._asdict(),
                        "batch": batch,
                        "tokens": said["tokens"],
                        "distinct_share": round(said["types"] / said["tokens"], 3),
                        "lstm_tokens_per_second": round(said["tokens"] / seconds["contextualize"]),
                        "bilm_tokens_per_second": round(said["tokens"] / seconds["bilm"]),
                        "encoder_types_per_second": round(said["types"] / seconds["encode"]),
                        "from_text_tokens_per_second": _rates(whole)["tokens_per_second"],
                    }
                )
        self.tell("network measured alone")

    # ---------------------------------------------------------------------- errors, lengths, memory

    def errors(self) -> None:
        """Compare each precision with exact float32, layer by layer."""
        exact = next((s for s in self._children if s.precision == "exact"), None)
        others = [s for s in self._children if s.precision != "exact"]
        if not others:
            return
        sentences = self.text.sentences[:_ERROR_SENTENCES]
        with tempfile.TemporaryDirectory(prefix="elmo-bench-") as folder:
            if exact is None:
                exact = Setup("exact", others[0].threads)
                with Child(threads=exact.threads) as child:
                    self._load_once(child, exact, sentences[0])
                    truth = vectors_of(child, sentences, Path(folder))
            else:
                truth = vectors_of(self._children[exact], sentences, Path(folder))
            for setup in others:
                found = vectors_of(self._children[setup], sentences, Path(folder))
                self.report.errors.append({**setup._asdict(), **compare(found, truth)})

    def lengths(self) -> None:
        """Show what a run of 10^3, 10^4, ... tokens costs, and one very long sentence."""
        for setup, child in self._children.items():
            child.ask("time", sentences=self._supply.take(256), batch=128)  # wake the threads
            for tokens in sorted(self.settings.lengths):
                path = None if self.settings.text is None else str(self.settings.text)
                said = child.ask("run", text=path, tokens=tokens)
                row = {**setup._asdict(), **_rates([said]), **child.ask("memory")}
                self.report.lengths.append(row)
                self.tell(f"{said['tokens']:,} tokens: {said['seconds']:.1f} s")
            self._long_sentence(setup, child)

    def _long_sentence(self, setup: Setup, child: Child) -> None:
        long = self.settings.long_sentence
        short = max(1, long // 100)
        running = sentence_of(self.text.sentences, long)
        pieces = [running[i : i + short] for i in range(0, min(long, 20 * short), short)]
        per_token: dict[str, list[float]] = {"long": [], "short": []}
        child.ask("time", sentences=[running], batch=1)  # so that the cache knows all words
        for _ in range(min(3, self.settings.rounds)):
            for name, sentences in (("short", pieces), ("long", [running])):
                said = child.ask("time", sentences=sentences, batch=1)
                per_token[name].append(said["seconds"] / said["tokens"])
        cost = {name: statistics.median(values) for name, values in per_token.items()}
        self.report.long_sentence.append(
            {
                **setup._asdict(),
                "tokens": long,
                "short_tokens": short,
                "ms_per_token": round(cost["long"] * 1000, 4),
                "short_ms_per_token": round(cost["short"] * 1000, 4),
                "ratio": round(cost["long"] / cost["short"], 3),
            }
        )

    def memory(self) -> None:
        """Note the peaks: of loading, measuring, all of it."""
        for row in self.report.loads:
            row |= self._children[Setup(row["precision"], row["threads"])].ask("memory")


def vectors_of(child: Child, sentences: list[list[str]], folder: Path) -> NDArray[np.float32]:
    """Let a process compute vectors, shape (L + 1, N, 2D)."""
    out = folder / "vectors.npy"
    child.ask("vectors", sentences=sentences, out=str(out))
    found: NDArray[np.float32] = np.load(out)
    return found


def compare(found: NDArray[np.float32], truth: NDArray[np.float32]) -> dict[str, Any]:
    """Say how far vectors (L + 1, N, 2D) are from the true ones."""
    a, b = found.astype(np.float64), truth.astype(np.float64)
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosine = (a * b).sum(axis=-1) / np.maximum(norms, 1e-30)
    return {
        "largest_difference": float(f"{np.abs(a - b).max():.3g}"),
        "cosine_mean": [round(float(layer.mean()), 6) for layer in cosine],
        "cosine_worst": [round(float(layer.min()), 6) for layer in cosine],
    }


def _rates(said: Sequence[dict[str, Any]]) -> dict[str, Any]:
    rates = [one["tokens"] / one["seconds"] for one in said]
    looked_up = sum(one["hits"] + one["misses"] for one in said)
    return {
        "tokens_per_second": round(statistics.median(rates), 1),
        "slowest": round(min(rates), 1),
        "fastest": round(max(rates), 1),
        "tokens": sum(one["tokens"] for one in said),
        "seconds": round(sum(one["seconds"] for one in said), 3),
        "hit_rate": round(sum(one["hits"] for one in said) / max(1, looked_up), 4),
    }


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 3)


def _turned(setups: list[Setup], number: int) -> list[Setup]:
    """Let another one begin in each round, so that none always comes after the same one."""
    at = number % len(setups)
    return setups[at:] + setups[:at]


def _tokens_needed(settings: BenchSettings) -> int:
    if settings.lengths:
        return settings.long_sentence
    steady = settings.tokens // settings.rounds + 1
    sentence = 60  # tokens of a sentence, with room: a piece is whole batches
    pieces = sum(
        2 * (steady + steady // _COLD_SHARE) + 2 * sentence * batch for batch in settings.batches
    )
    return settings.tokens + settings.rounds * pieces
