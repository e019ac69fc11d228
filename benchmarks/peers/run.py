"""Compare the speed of elmokit, AllenNLP and simple_elmo on the same weights and sentences.

Every implementation runs in its own process until the end of the benchmark. Only one of them works
at a time, and in each round, all of them process the same text one after another, so that other
processes on the machine affect all of them. The vectors are compared before the measurement. See
README.md in this directory.

    python benchmarks/peers/run.py            everything, about 25 minutes on two cores
    python benchmarks/peers/run.py --quick    the small model, two rounds
"""

from __future__ import annotations

import argparse
import datetime
import json
import shlex
import signal
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import table
import torch
from child import Child, ChildError
from environments import Unavailable, environment
from numpy.typing import NDArray
from plan import Plan, make_plan

from elmokit.convert import bilm_hdf5
from elmokit.embed.bench import machine, read_text
from elmokit.embed.precision import PRECISIONS
from elmokit.model.bilm import BiLM
from elmokit.presets import preset

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]

SEED = 0
TOLERANCE = 1e-5  # maximum difference of float32 vectors
MIN_COSINE = 0.999
MIN_ROUNDS = 3
MAX_BUSY = 0.1  # Warn if other processes use a larger fraction of the CPU time.


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        key: The name in the JSON file.
        label: The name in the table.
        process: The worker process, which two rows can share.
        ranked: Whether the sentences are sorted by length.
    """

    key: str
    label: str
    process: str
    ranked: bool = False

    @property
    def ours(self) -> bool:
        """Whether the row is elmokit."""
        return self.key.startswith("ours")


ROWS = (
    Row("allennlp", "AllenNLP 2.10.1, default usage", "allennlp"),
    Row("allennlp-sorted", "AllenNLP, sentences sorted by length", "allennlp", True),
    Row("allennlp-cached", "AllenNLP with `vocab_to_cache`", "allennlp-cached"),
    Row("allennlp-cached-sorted", "AllenNLP cached and sorted", "allennlp-cached", True),
    Row("simple_elmo", "simple_elmo", "simple_elmo"),
    Row("ours-exact", "elmokit", "ours-exact"),
    # In separate processes, because a shared cache would already contain the words of the pool.
    Row("ours-exact-sorted", "elmokit, sorted", "ours-exact-sorted", True),
    Row("ours-fast", "elmokit `fast`", "ours-fast"),
    Row("ours-fast-sorted", "elmokit `fast`, sorted", "ours-fast-sorted", True),
)


def log(line: str) -> None:
    """Print a message with the time."""
    print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)


def busy_share(seconds: float = 2.0) -> float:
    """Return the fraction of the CPU time that is currently used, or 0 if it is unknown.

    On a busy machine, ratios are unreliable as well: threads that wait for each other lose more
    time than other processes use, to a different degree in each implementation.
    """
    stat = Path("/proc/stat")
    if not stat.is_file():
        return 0.0

    def read() -> tuple[int, int]:
        ticks = [int(value) for value in stat.read_text().split("\n", 1)[0].split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4]  # total, and idle or waiting for a disk

    before = read()
    time.sleep(seconds)
    after = read()
    return 1 - (after[1] - before[1]) / max(1, after[0] - before[0])


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmark and write the results."""
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(arguments)
    if options.quick:
        options.models, options.rounds, options.tokens = "small", 2, 2_000
        options.batch = "1,32"
    batches = [int(part) for part in options.batch.split(",")]
    begin = time.monotonic()
    pythons, missing = _peers(options)
    text = read_text(options.text, 10 * options.tokens + 200 * options.rounds * sum(batches))
    plan = make_plan(text.sentences, batches, options.rounds, options.tokens)
    names = options.models.split(",")
    busy = busy_share()
    if busy > MAX_BUSY:
        log(f"Warning: other processes use {busy:.0%} of the CPU time. The results are unreliable.")
    results: dict[str, Any] = {
        "ratios": {},
        "what": "tokens/s of embedding, medians over rounds; all implementations process the same "
        "sentences, which are new in each round. ratios: the speed of elmokit divided by that of "
        "the other implementation, medians over rounds. elmokit's token cache already contains "
        "words of other text. AllenNLP's cache contains all words from the start; filling it is "
        "part of its load time.",
        "models": {},
        "missing": missing,
        "command": shlex.join(["python", "benchmarks/peers/run.py", *_portable(arguments)]),
        "date": datetime.date.today().isoformat(),
        "seed": SEED,
        "machine": machine() | {"threads": options.threads, "busy_before": round(busy, 2)},
        "versions": {},
        "text": text.describe(),
        "tokens_before_steady_state": sum(map(len, plan.warm_up)),
        "limit_minutes": options.minutes,
    }
    for number, name in enumerate(names):
        # The first model is the largest, so it gets most of the remaining time.
        left = options.minutes * 60 - (time.monotonic() - begin)
        share = 1.0 if number + 1 == len(names) else 0.75
        deadline = time.monotonic() + left * share
        result = run_model(name, plan, batches, options, pythons, deadline)
        results["versions"] |= result.pop("versions")
        results["ratios"][name] = result.pop("ratios")
        results["models"][name] = result
        results["minutes"] = round((time.monotonic() - begin) / 60, 1)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print(table.render(results))
    for line in [*missing.values(), f"Results written to {options.out}."]:
        log(line)
    agree = all(row["agrees"] for model in results["models"].values() for row in model["agreement"])
    if not agree:
        log("The vectors do NOT agree. See 'agreement' in the results.")
    return 0 if agree else 1


def run_model(
    name: str,
    plan: Plan,
    batches: list[int],
    options: argparse.Namespace,
    pythons: dict[str, Path],
    deadline: float,
) -> dict[str, Any]:
    """Measure one model with all implementations."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elmo-peers-")))
        weights = write_weights(name, folder / name)
        log(f"{name}: loading")
        processes, loads, notes = start(stack, weights, plan, options, pythons)
        versions: dict[str, str] = {}
        for loaded in loads.values():
            versions |= loaded.pop("versions")
        rows = [row for row in ROWS if row.process in processes]
        agreement = check_vectors(processes, plan, folder)
        for key, result in warm_up(processes, plan, max(batches)).items():
            loads[key] |= result
        rounds = Rounds(rows, processes, plan, batches)
        n_rounds = rounds.run(options.rounds, deadline)
        rows, speeds = rounds.rows, rounds.speeds()
        notes += rounds.notes
        for key, result in long_run(processes, plan, max(batches)).items():
            loads[key] |= result
        for key in dict.fromkeys(row.process for row in rows):
            loads[key] |= processes[key].ask("memory")
    config = preset(name)
    return {
        "shape": f"{config.lstm.n_layers} x {config.lstm.dim}/{config.lstm.projection_dim}",
        "ratios": ratios(rows, speeds),
        "rounds": n_rounds,
        "rows": [_row(row, speeds, loads[row.process]) for row in rows],
        "agreement": agreement,
        "notes": notes,
        "versions": versions,
    }


def write_weights(name: str, folder: Path) -> Path:
    """Write random weights in AllenNLP's format, which all implementations can read."""
    torch.manual_seed(SEED)
    folder.mkdir()
    bilm_hdf5.write(BiLM(preset(name)), folder / "options.json", folder / "weights.hdf5")
    return folder / "weights.hdf5"


def start(
    stack: ExitStack,
    weights: Path,
    plan: Plan,
    options: argparse.Namespace,
    pythons: dict[str, Path],
) -> tuple[dict[str, Child], dict[str, dict[str, Any]], list[str]]:
    """Start the worker processes one after another, and load the model in each."""
    processes: dict[str, Child] = {}
    loads: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    options_file = str(weights.with_name("options.json"))
    for key in dict.fromkeys(row.process for row in ROWS):
        peer = key.split("-")[0]
        values: dict[str, Any] = {"weights": str(weights), "threads": options.threads}
        if peer == "ours":
            precision = key.split("-")[1]
            if precision not in PRECISIONS:
                continue
            process = Child(threads=options.threads, limit=options.limit)
            values |= {"model": options_file, "precision": precision, "device": "cpu"}
        elif peer in pythons:
            command = [str(pythons[peer]), str(HERE / f"{peer}_worker.py")]
            # If pytest or make started the benchmark, the worker must not import our packages.
            clean = {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}
            process = Child(
                command, threads=options.threads, limit=options.limit, environment=clean
            )
            values["options"] = options_file
            if key == "allennlp-cached":
                values["vocabulary"] = plan.vocabulary()
        else:
            continue
        stack.enter_context(process)
        try:
            loaded = process.ask("load", **values)
        except ChildError as error:
            notes.append(f"{key}: {error}")
            log(f"{key} is excluded: {error}")
            continue
        processes[key] = process
        loads[key] = {"load_s": round(loaded["load_s"], 3), "versions": loaded["versions"]}
        if "vocabulary" in values:
            loads[key]["cached_words"] = len(values["vocabulary"])
        log(f"{key} loaded in {loaded['load_s']:.1f} s")
    return processes, loads, notes


def check_vectors(processes: dict[str, Child], plan: Plan, folder: Path) -> list[dict[str, Any]]:
    """Compare the vectors of one batch, from the zero state, with elmokit's float32 vectors."""
    expected = vectors_of(processes["ours-exact"], plan.check, folder)
    rows = []
    for key, process in processes.items():
        if key == "ours-exact":
            continue
        row = {"process": key, **compare(vectors_of(process, plan.check, folder), expected)}
        exact = row["largest_difference"] <= TOLERANCE
        row["agrees"] = min(row["cosine_mean"]) >= MIN_COSINE if "fast" in key else exact
        log(f"{key}: maximum difference from ours-exact: {row['largest_difference']:.1e}")
        rows.append(row)
    return rows


def vectors_of(child: Child, sentences: list[list[str]], folder: Path) -> NDArray[np.float32]:
    """Return the vectors computed by a worker, shape (L + 1, N, 2D)."""
    out = folder / "vectors.npy"
    child.ask("vectors", sentences=sentences, out=str(out))
    vectors: NDArray[np.float32] = np.load(out)
    return vectors


def compare(vectors: NDArray[np.float32], expected: NDArray[np.float32]) -> dict[str, Any]:
    """Return the differences and cosines between vectors (L + 1, N, 2D) and the expected ones."""
    a, b = vectors.astype(np.float64), expected.astype(np.float64)
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosine = (a * b).sum(axis=-1) / np.maximum(norms, 1e-30)
    return {
        "largest_difference": float(f"{np.abs(a - b).max():.3g}"),
        "cosine_mean": [round(float(layer.mean()), 6) for layer in cosine],
        "cosine_worst": [round(float(layer.min()), 6) for layer in cosine],
    }


def warm_up(processes: dict[str, Child], plan: Plan, batch: int) -> dict[str, dict[str, Any]]:
    """Fill elmokit's token cache. Return the speed with the initially empty cache as `cold`."""
    results = {}
    for key, process in processes.items():
        if key.startswith("ours"):
            timing = process.ask("time", sentences=plan.warm_up, batch=batch, cold=True)
            results[key] = {"cold": _summarize(timing, batch)}
    return results


def long_run(processes: dict[str, Child], plan: Plan, batch: int) -> dict[str, dict[str, Any]]:
    """Measure elmokit on more text than in the rounds, which slow implementations limit."""
    results = {}
    for key, process in processes.items():
        if key.startswith("ours") and not key.endswith("sorted"):
            timing = process.ask("time", sentences=plan.long_run, batch=batch)
            results[key] = {"steady": _summarize(timing, batch)}
    return results


def _summarize(timing: dict[str, Any], batch: int) -> dict[str, Any]:
    return {
        "batch": batch,
        "tokens": timing["tokens"],
        "tokens_per_second": round(timing["tokens"] / timing["seconds"], 1),
        "hit_rate": round(timing["hits"] / max(1, timing["hits"] + timing["misses"]), 4),
    }


Speeds = dict[str, dict[int, list[float]]]


class Rounds:
    """Measures all cells of the table, round by round, starting with a different row each time.

    If another implementation fails, it is excluded from the remaining rounds.
    """

    def __init__(
        self, rows: list[Row], processes: dict[str, Child], plan: Plan, batches: list[int]
    ) -> None:
        self.rows, self.notes = rows, list[str]()
        self._processes, self._plan, self._batches = processes, plan, batches
        self._speeds: Speeds = {row.key: {batch: [] for batch in batches} for row in rows}

    def run(self, rounds: int, deadline: float) -> int:
        """Run all rounds, or until the deadline. Return the number of rounds that were run."""
        for number in range(rounds):
            begin = time.monotonic()
            for batch in self._batches:
                start = number % len(self.rows)
                for row in self.rows[start:] + self.rows[:start]:
                    if row in self.rows:
                        self._time(row, batch, number)
            seconds = time.monotonic() - begin
            log(f"Round {number + 1} of {rounds}: {seconds:.0f} s")
            if number + 1 >= MIN_ROUNDS and time.monotonic() + seconds > deadline:
                log("The time limit has been reached.")
                return number + 1
        return rounds

    def speeds(self) -> Speeds:
        """Return tokens/s by row, batch size and round."""
        speeds = {row.key: self._speeds[row.key] for row in self.rows}
        for row in self.rows:
            if row.ranked and 1 in self._batches:
                speeds[row.key][1] = speeds[row.key.removesuffix("-sorted")][1]
        return speeds

    def _time(self, row: Row, batch: int, number: int) -> None:
        if row.ranked and batch == 1:
            return  # the order of single sentences does not matter
        sentences = (self._plan.ranked if row.ranked else self._plan.unsorted)[batch, number]
        try:
            timing = self._processes[row.process].ask("time", sentences=sentences, batch=batch)
        except ChildError as error:
            if row.ours:
                raise
            self.notes.append(f"{row.process} failed in round {number + 1}: {error}")
            log(self.notes[-1])
            self.rows = [other for other in self.rows if other.process != row.process]
            return
        self._speeds[row.key][batch].append(timing["tokens"] / timing["seconds"])


def ratios(rows: list[Row], speeds: Speeds) -> dict[str, dict[str, dict[str, float]]]:
    """Return the speedup of each row of elmokit over each other row, by batch size."""
    return {
        ours.key: {
            peer.key: {str(b): _ratio(speeds[ours.key][b], speeds[peer.key][b]) for b in batches}
            for peer in rows
            if not peer.ours
        }
        for ours in rows
        if ours.ours
        for batches in [list(speeds[ours.key])]
    }


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return round(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)), 2)


def _row(row: Row, speeds: Speeds, load: dict[str, Any]) -> dict[str, Any]:
    own = speeds[row.key]
    base = speeds.get("allennlp", {})
    return {
        "row": row.key,
        "label": row.label,
        "tokens_per_second": {str(b): round(statistics.median(s), 1) for b, s in own.items()},
        "times_allennlp": {str(b): _ratio(s, base[b]) for b, s in own.items() if b in base},
        "rounds": {str(b): [round(speed, 1) for speed in s] for b, s in own.items()},
        **load,
    }


def _peers(options: argparse.Namespace) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the Python of each available implementation, and why the others are missing."""
    pythons: dict[str, Path] = {}
    missing: dict[str, str] = {}
    interpreters = {"allennlp": options.allennlp_python, "simple_elmo": options.simple_elmo_python}
    for peer, python in interpreters.items():
        try:
            if peer in options.without:
                raise Unavailable("it is excluded by --without")
            if python is None:
                log(f"{peer}: using the environment in {options.cache}")
            pythons[peer] = python or environment(peer, options.cache)
        except Unavailable as reason:
            missing[peer] = f"{peer} is not included: {reason}."
            log(missing[peer])
    return pythons, missing


def _portable(arguments: list[str]) -> list[str]:
    """Remove directories of this machine from the command for the results."""
    return [Path(a).name if "/" in a else a for a in arguments]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add(
        "--text",
        type=Path,
        help="text file with a paragraph per line. Default: examples/corpus.txt",
    )
    add("--models", default="original,small", help="models, the largest first")
    add("--batch", default="1,32,64,128", help="sentences per call, at most 128")
    add("--rounds", type=int, default=5)
    add("--tokens", type=int, default=20_000, help="tokens of the warm-up and of the long run")
    add("--threads", type=int, default=torch.get_num_threads())
    add("--minutes", type=float, default=25.0, help="approximate time limit")
    add("--limit", type=float, default=600.0, help="time limit for a response in seconds")
    add("--out", type=Path, default=table.RESULTS)
    add(
        "--cache",
        type=Path,
        default=ROOT / "build" / "peers",
        help="directory for the environments",
    )
    add("--allennlp-python", type=Path, help="Python of an existing environment")
    add("--simple-elmo-python", type=Path, help="Python of an existing environment")
    add("--without", nargs="*", default=[], choices=("allennlp", "simple_elmo"))
    add("--quick", action="store_true", help="the small model, two rounds, batch 1 and 32")
    return parser


if __name__ == "__main__":
    # Clean up the processes and the weights if `kill` or `timeout` stops the benchmark.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
