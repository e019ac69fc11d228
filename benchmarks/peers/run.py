"""Measure elmokit against AllenNLP and simple_elmo: same weights, same sentences, in turn.

Every system is a process that lives through the whole run; only one works at a time, and all of
them take each piece of text in turn, round by round, so that whatever else the machine does falls
on all alike. The vectors are compared before anything is timed. See README.md beside this file.

    python benchmarks/peers/run.py            all, about 25 minutes on two cores
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
TOLERANCE = 1e-5  # what "the same vectors" means in float32
COSINE = 0.999
FEWEST_ROUNDS = 3
QUIET = 0.1  # share of the processors that others may use before we say so


@dataclass(frozen=True)
class Row:
    """A line of the table.

    Attributes:
        key: Its name in the JSON.
        label: Its name for people.
        process: The process that does it; two lines may share one.
        ranked: Whether sentences come in order of length.
    """

    key: str
    label: str
    process: str
    ranked: bool = False

    @property
    def ours(self) -> bool:
        """Whether it is elmokit."""
        return self.key.startswith("ours")


ROWS = (
    Row("allennlp", "AllenNLP 2.10.1, default usage", "allennlp"),
    Row("allennlp-sorted", "AllenNLP, sentences sorted by length", "allennlp", True),
    Row("allennlp-cached", "AllenNLP with `vocab_to_cache`", "allennlp-cached"),
    Row("allennlp-cached-sorted", "AllenNLP cached and sorted", "allennlp-cached", True),
    Row("simple_elmo", "simple_elmo", "simple_elmo"),
    Row("ours-exact", "elmokit", "ours-exact"),
    # Processes of their own: a shared cache would already know the words of the same pool.
    Row("ours-exact-sorted", "elmokit, sorted", "ours-exact-sorted", True),
    Row("ours-fast", "elmokit `fast`", "ours-fast"),
    Row("ours-fast-sorted", "elmokit `fast`, sorted", "ours-fast-sorted", True),
)


def say(line: str) -> None:
    """Tell how far the run is."""
    print(f"[{time.strftime('%H:%M:%S')}] {line}", file=sys.stderr, flush=True)


def busy_share(seconds: float = 2.0) -> float:
    """Return which share of all processors others use now; 0 where that cannot be known.

    Threads that wait for each other lose far more than the share that others take, and not every
    system loses alike, so that a run on a busy machine does not even give ratios.
    """
    stat = Path("/proc/stat")
    if not stat.is_file():
        return 0.0

    def read() -> tuple[int, int]:
        ticks = [int(value) for value in stat.read_text().split("\n", 1)[0].split()[1:9]]
        return sum(ticks), ticks[3] + ticks[4]  # all, idle or waiting for a disk

    before = read()
    time.sleep(seconds)
    after = read()
    return 1 - (after[1] - before[1]) / max(1, after[0] - before[0])


def main(arguments: list[str] | None = None) -> int:
    """Run the comparison and write the JSON."""
    given = sys.argv[1:] if arguments is None else arguments
    chosen = _parser().parse_args(given)
    if chosen.quick:
        chosen.models, chosen.rounds, chosen.tokens = "small", 2, 2_000
        chosen.batch = "1,32"
    batches = [int(part) for part in chosen.batch.split(",")]
    begin = time.monotonic()
    pythons, missing = _peers(chosen)
    text = read_text(chosen.text, 10 * chosen.tokens + 200 * chosen.rounds * sum(batches))
    plan = make_plan(text.sentences, batches, chosen.rounds, chosen.tokens)
    names = chosen.models.split(",")
    busy = busy_share()
    if busy > QUIET:
        say(f"Other programs use {busy:.0%} of this machine: the figures will be off.")
    results: dict[str, Any] = {
        "ratios": {},
        "what": "tokens/s of embedding, medians of rounds in turn on the same sentences, new text "
        "in each round; ratios are medians of the rounds' ratios: how many times as many tokens/s "
        "as the peer. Ours is in its steady state: its cache has seen other text before, and meets "
        "these sentences for the first time. AllenNLP's cache holds all words from the beginning; "
        "filling it is part of its load time.",
        "models": {},
        "missing": missing,
        "command": shlex.join(["python", "benchmarks/peers/run.py", *_portable(given)]),
        "date": datetime.date.today().isoformat(),
        "seed": SEED,
        "machine": machine() | {"threads": chosen.threads, "busy_before": round(busy, 2)},
        "versions": {},
        "text": text.describe(),
        "tokens_before_steady_state": sum(map(len, plan.filling)),
        "limit_minutes": chosen.minutes,
    }
    for number, name in enumerate(names):
        # The time that is left is shared by how long models take, the first being the large one.
        left = chosen.minutes * 60 - (time.monotonic() - begin)
        share = 1.0 if number + 1 == len(names) else 0.75
        deadline = time.monotonic() + left * share
        found = run_model(name, plan, batches, chosen, pythons, deadline)
        results["versions"] |= found.pop("versions")
        results["ratios"][name] = found.pop("ratios")
        results["models"][name] = found
        results["minutes"] = round((time.monotonic() - begin) / 60, 1)
        chosen.out.parent.mkdir(parents=True, exist_ok=True)
        chosen.out.write_text(json.dumps(results, indent=1) + "\n", "utf-8")
    print(table.render(results))
    for line in [*missing.values(), f"written to {chosen.out}"]:
        say(line)
    agree = all(one["agrees"] for found in results["models"].values() for one in found["agreement"])
    if not agree:
        say("The vectors do NOT agree; see 'agreement' in the results.")
    return 0 if agree else 1


def run_model(
    name: str,
    plan: Plan,
    batches: list[int],
    chosen: argparse.Namespace,
    pythons: dict[str, Path],
    deadline: float,
) -> dict[str, Any]:
    """Measure one shape with all systems."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="elmo-peers-")))
        weights = write_weights(name, folder / name)
        say(f"{name}: loading")
        processes, loads, notes = start(stack, weights, plan, chosen, pythons)
        versions: dict[str, str] = {}
        for loaded in loads.values():
            versions |= loaded.pop("versions")
        rows = [row for row in ROWS if row.process in processes]
        agreement = check_vectors(processes, plan, folder)
        for key, found in fill(processes, plan, max(batches)).items():
            loads[key] |= found
        rounds = Rounds(rows, processes, plan, batches)
        done = rounds.run(chosen.rounds, deadline)
        rows, speeds = rounds.rows, rounds.speeds()
        notes += rounds.notes
        for key, found in long_run(processes, plan, max(batches)).items():
            loads[key] |= found
        for key in dict.fromkeys(row.process for row in rows):
            loads[key] |= processes[key].ask("memory")
    config = preset(name)
    return {
        "shape": f"{config.lstm.n_layers} x {config.lstm.dim}/{config.lstm.projection_dim}",
        "ratios": ratios(rows, speeds),
        "rounds": done,
        "rows": [_row(row, speeds, loads[row.process]) for row in rows],
        "agreement": agreement,
        "notes": notes,
        "versions": versions,
    }


def write_weights(name: str, folder: Path) -> Path:
    """Write random weights in AllenNLP's format, which all systems read."""
    torch.manual_seed(SEED)
    folder.mkdir()
    bilm_hdf5.write(BiLM(preset(name)), folder / "options.json", folder / "weights.hdf5")
    return folder / "weights.hdf5"


def start(
    stack: ExitStack,
    weights: Path,
    plan: Plan,
    chosen: argparse.Namespace,
    pythons: dict[str, Path],
) -> tuple[dict[str, Child], dict[str, dict[str, Any]], list[str]]:
    """Start and load every process, one after the other."""
    processes: dict[str, Child] = {}
    loads: dict[str, dict[str, Any]] = {}
    notes: list[str] = []
    options = str(weights.with_name("options.json"))
    for key in dict.fromkeys(row.process for row in ROWS):
        peer = key.split("-")[0]
        values: dict[str, Any] = {"weights": str(weights), "threads": chosen.threads}
        if peer == "ours":
            precision = key.split("-")[1]
            if precision not in PRECISIONS:
                continue
            process = Child(threads=chosen.threads, limit=chosen.limit)
            values |= {"model": options, "precision": precision, "device": "cpu"}
        elif peer in pythons:
            command = [str(pythons[peer]), str(HERE / f"{peer}_worker.py")]
            # As a child of pytest or make, a worker must not find our packages before its own.
            clean = {"PYTHONPATH": "", "PYTHONNOUSERSITE": "1"}
            process = Child(command, threads=chosen.threads, limit=chosen.limit, environment=clean)
            values["options"] = options
            if key == "allennlp-cached":
                values["vocabulary"] = plan.vocabulary()
        else:
            continue
        stack.enter_context(process)
        try:
            loaded = process.ask("load", **values)
        except ChildError as error:
            notes.append(f"{key}: {error}")
            say(f"{key} is left out: {error}")
            continue
        processes[key] = process
        loads[key] = {"load_s": round(loaded["load_s"], 3), "versions": loaded["versions"]}
        if "vocabulary" in values:
            loads[key]["cached_words"] = len(values["vocabulary"])
        say(f"{key} loaded in {loaded['load_s']:.1f} s")
    return processes, loads, notes


def check_vectors(processes: dict[str, Child], plan: Plan, folder: Path) -> list[dict[str, Any]]:
    """Compare the vectors of one batch, from a fresh state, with those of ours in float32."""
    truth = vectors_of(processes["ours-exact"], plan.check, folder)
    found = []
    for key, process in processes.items():
        if key == "ours-exact":
            continue
        row = {"process": key, **compare(vectors_of(process, plan.check, folder), truth)}
        exact = row["largest_difference"] <= TOLERANCE
        row["agrees"] = min(row["cosine_mean"]) >= COSINE if "fast" in key else exact
        say(f"{key}: largest difference to ours-exact {row['largest_difference']:.1e}")
        found.append(row)
    return found


def vectors_of(child: Child, sentences: list[list[str]], folder: Path) -> NDArray[np.float32]:
    """Let a process compute vectors, shape (L + 1, N, 2D)."""
    out = folder / "vectors.npy"
    child.ask("vectors", sentences=sentences, out=str(out))
    vectors: NDArray[np.float32] = np.load(out)
    return vectors


def compare(vectors: NDArray[np.float32], truth: NDArray[np.float32]) -> dict[str, Any]:
    """Say how far vectors (L + 1, N, 2D) are from the true ones."""
    a, b = vectors.astype(np.float64), truth.astype(np.float64)
    norms = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosine = (a * b).sum(axis=-1) / np.maximum(norms, 1e-30)
    return {
        "largest_difference": float(f"{np.abs(a - b).max():.3g}"),
        "cosine_mean": [round(float(layer.mean()), 6) for layer in cosine],
        "cosine_worst": [round(float(layer.min()), 6) for layer in cosine],
    }


def fill(processes: dict[str, Child], plan: Plan, batch: int) -> dict[str, dict[str, Any]]:
    """Let our caches see text first; that pass, from an empty cache, is the cold figure."""
    found = {}
    for key, process in processes.items():
        if key.startswith("ours"):
            said = process.ask("time", sentences=plan.filling, batch=batch, cold=True)
            found[key] = {"cold": _figures(said, batch)}
    return found


def long_run(processes: dict[str, Child], plan: Plan, batch: int) -> dict[str, dict[str, Any]]:
    """Let ours read on, longer than the peers' patience allows in the rounds."""
    found = {}
    for key, process in processes.items():
        if key.startswith("ours") and not key.endswith("sorted"):
            said = process.ask("time", sentences=plan.further, batch=batch)
            found[key] = {"steady": _figures(said, batch)}
    return found


def _figures(said: dict[str, Any], batch: int) -> dict[str, Any]:
    return {
        "batch": batch,
        "tokens": said["tokens"],
        "tokens_per_second": round(said["tokens"] / said["seconds"], 1),
        "hit_rate": round(said["hits"] / max(1, said["hits"] + said["misses"]), 4),
    }


Speeds = dict[str, dict[int, list[float]]]


class Rounds:
    """All cells, timed in turn, round by round; another system begins in each round.

    A peer that fails is left out from then on: the others' figures are still worth having.
    """

    def __init__(
        self, rows: list[Row], processes: dict[str, Child], plan: Plan, batches: list[int]
    ) -> None:
        self.rows, self.notes = rows, list[str]()
        self._processes, self._plan, self._batches = processes, plan, batches
        self._speeds: Speeds = {row.key: {batch: [] for batch in batches} for row in rows}

    def run(self, rounds: int, deadline: float) -> int:
        """Measure until all rounds are done or the time is up; return how many there were."""
        for number in range(rounds):
            begin = time.monotonic()
            for batch in self._batches:
                at = number % len(self.rows)
                for row in self.rows[at:] + self.rows[:at]:
                    if row in self.rows:
                        self._time(row, batch, number)
            took = time.monotonic() - begin
            say(f"round {number + 1} of {rounds}: {took:.0f} s")
            if number + 1 >= FEWEST_ROUNDS and time.monotonic() + took > deadline:
                say("the time is up")
                return number + 1
        return rounds

    def speeds(self) -> Speeds:
        """Return tokens/s by row, batch size and round."""
        found = {row.key: self._speeds[row.key] for row in self.rows}
        for row in self.rows:
            if row.ranked and 1 in self._batches:
                found[row.key][1] = found[row.key.removesuffix("-sorted")][1]
        return found

    def _time(self, row: Row, batch: int, number: int) -> None:
        if row.ranked and batch == 1:
            return  # one sentence at a time: order does not matter
        piece = (self._plan.ranked if row.ranked else self._plan.pieces)[batch, number]
        try:
            said = self._processes[row.process].ask("time", sentences=piece, batch=batch)
        except ChildError as error:
            if row.ours:
                raise
            self.notes.append(f"{row.process} failed in round {number + 1}: {error}")
            say(self.notes[-1])
            self.rows = [other for other in self.rows if other.process != row.process]
            return
        self._speeds[row.key][batch].append(said["tokens"] / said["seconds"])


def ratios(rows: list[Row], speeds: Speeds) -> dict[str, dict[str, dict[str, float]]]:
    """Return how many times as fast each of ours is as each peer, by batch size."""
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
    found = speeds[row.key]
    base = speeds.get("allennlp", {})
    return {
        "row": row.key,
        "label": row.label,
        "tokens_per_second": {str(b): round(statistics.median(s), 1) for b, s in found.items()},
        "times_allennlp": {str(b): _ratio(s, base[b]) for b, s in found.items() if b in base},
        "rounds": {str(b): [round(speed, 1) for speed in s] for b, s in found.items()},
        **load,
    }


def _peers(chosen: argparse.Namespace) -> tuple[dict[str, Path], dict[str, str]]:
    """Return the Python of each peer that can be had, and why the others cannot."""
    pythons: dict[str, Path] = {}
    missing: dict[str, str] = {}
    given = {"allennlp": chosen.allennlp_python, "simple_elmo": chosen.simple_elmo_python}
    for peer, python in given.items():
        try:
            if peer in chosen.without:
                raise Unavailable("left out by --without")
            if python is None:
                say(f"{peer}: looking for its environment in {chosen.cache}")
            pythons[peer] = python or environment(peer, chosen.cache)
        except Unavailable as reason:
            missing[peer] = f"{peer} is not compared: {reason}."
            say(missing[peer])
    return pythons, missing


def _portable(arguments: list[str]) -> list[str]:
    """Leave the folders of this machine out of the command that is noted."""
    return [Path(a).name if "/" in a else a for a in arguments]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--text", type=Path, help="a text file, a paragraph per line (examples/corpus.txt)")
    add("--models", default="original,small", help="shapes, the largest first")
    add("--batch", default="1,32,64,128", help="sentences per call, at most 128")
    add("--rounds", type=int, default=5)
    add("--tokens", type=int, default=20_000, help="tokens before the steady state")
    add("--threads", type=int, default=torch.get_num_threads())
    add("--minutes", type=float, default=25.0, help="stop after the round that ends by then")
    add("--limit", type=float, default=600.0, help="seconds that one answer may take")
    add("--out", type=Path, default=table.RESULTS)
    add("--cache", type=Path, default=ROOT / "build" / "peers", help="where environments are kept")
    add("--allennlp-python", type=Path, help="an environment that is already there")
    add("--simple-elmo-python", type=Path, help="the same")
    add("--without", nargs="*", default=[], choices=("allennlp", "simple_elmo"))
    add("--quick", action="store_true", help="the small model, two rounds, batch 1 and 32")
    return parser


if __name__ == "__main__":
    # Ended by `kill` or `timeout`, the processes and the weights must not stay behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
