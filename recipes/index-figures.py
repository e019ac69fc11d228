"""A token index of a million tokens: size, time, memory, and what rounding and faiss cost.

Needs: pip install 'elmokit[search]', a text of about 6 MB (the figures: Simple English
Wikipedia), and 5 GB of disk for --work. What is in --work from an earlier run is not made again.

Time with the bundled model, one thread: 5 minutes of a free core for the index, 1 for faiss, 2 for
the rest. Seconds are those of the processor, since the machine may have other work; the time by the
clock stands beside them in the JSON.

Run as: OMP_NUM_THREADS=1 python recipes/index-figures.py TEXT --work FOLDER
Writes results/index.json and prints the table of docs/how-to/search.md. The same by hand:
    elmo index TEXT -o FOLDER --split --precision fast --json
    elmo index -o FOLDER --ann top --json
    elmo neighbors FOLDER --query 'He will [play] in the final .'
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import os
import platform
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import elmokit
from elmokit.embed.spaces import choose_spaces, every_space, unit
from elmokit.search.index import Query, TokenIndex
from elmokit.search.index_build import IndexSettings, build_index
from elmokit.search.index_files import Column, GrowingArray, rounded, slug
from elmokit.search.neighbors import Rules

QUERY = "He will [play] in the final ."
SAMPLE_BYTES = 600_000  # of the text, for the agreement with float32
QUERIES = 200
TOP = choose_spaces(["top"], 3)


def main() -> None:
    """Measure what --work does not have yet; write and print all."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/index.json"))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    float16, int8 = args.work / "float16", args.work / "int8"

    def step(name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        path = args.work / f"{name}.json"
        if not path.is_file():
            path.write_text(json.dumps(measure(), indent=1))
        return dict(json.loads(path.read_text()))

    common = ["--split", "--precision", "fast", "--json", "--quiet", "--resume"]
    figures = {
        "build": step("build", lambda: command(["index", str(args.text), "-o", float16, *common])),
        "agreement": step("agreement", lambda: agreement(args)),
        "float16": step("queries-float16", lambda: queries(float16)),
        "int8": step("queries-int8", lambda: queries(to_int8(float16, int8))),
        "ann": step("ann", lambda: command(["index", "-o", int8, "--ann", "top", "--json", "-q"])),
        "ann_queries": step("queries-ann", lambda: ann_queries(int8)),
    }
    about = {
        "command": "python recipes/index-figures.py TEXT --work FOLDER",
        "text": "Simple English Wikipedia, the first 5,750,000 bytes",
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, shared",
        "threads": torch.get_num_threads(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": 0,
        "elmokit": elmokit.__version__,
    }
    args.out.write_text(json.dumps({**about, **figures}, indent=1) + "\n")
    for line in table(figures):
        sys.stdout.write(line + "\n")


def command(arguments: list[str | Path]) -> dict[str, Any]:
    """Run `elmo`; return what it printed, with its processor time and its memory."""
    program = "from elmokit.cli.main import run; run()"
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        **json.loads(done.stdout),
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime),
        "wall_seconds": round(time.monotonic() - clock),
        "peak_mb": round(after.ru_maxrss / 1024),
    }


# --------------------------------------------------------------------------------------- queries


def queries(folder: Path) -> dict[str, Any]:
    """Time queries, the files first out of the memory of the system and then in it."""
    elmo = elmokit.load(device="cpu")
    index = TokenIndex.open(folder)
    index.check(elmo)
    elmo.embed("to warm up .")
    for file in folder.iterdir():
        descriptor = os.open(file, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    before = own_mb()
    figures: dict[str, Any] = {"bytes": index.n_bytes, "tokens": index.tokens}
    figures["cold"] = timed(lambda: index.neighbors([QUERY], elmo, spaces=TOP), 1)
    figures["top"] = timed(lambda: index.neighbors([QUERY], elmo, spaces=TOP), 5)
    index.neighbors([QUERY], elmo)
    figures["every_layer_and_average"] = timed(lambda: index.neighbors([QUERY], elmo), 3)
    same = Rules(words="same")
    figures["same_word"] = timed(lambda: index.neighbors([QUERY], elmo, spaces=TOP, rules=same), 3)
    numbers = list(range(0, index.tokens, index.tokens // 32))[:32]
    figures["32_queries"] = timed(lambda: index.neighbors(numbers, spaces=TOP), 2)
    figures["added_mb"] = own_mb() - before
    return figures


def ann_queries(folder: Path) -> dict[str, Any]:
    """Time queries by faiss."""
    index = TokenIndex.open(folder)
    index.neighbors([1], spaces=TOP, ann=True)
    numbers = iter(range(1000, index.tokens, 997))
    return {"top": timed(lambda: index.neighbors([next(numbers)], spaces=TOP, ann=True), 20)}


def timed(work: Callable[[], object], times: int) -> dict[str, float]:
    """Return the median seconds of some runs."""
    cpu, wall = [], []
    for _ in range(times):
        processor, clock = time.process_time(), time.monotonic()
        work()
        cpu.append(time.process_time() - processor)
        wall.append(time.monotonic() - clock)
    return {"cpu": round(float(np.median(cpu)), 4), "wall": round(float(np.median(wall)), 4)}


def own_mb() -> int:
    """Return the memory of this process that is not a mapped file, in MB."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) // 1024 for line in status.splitlines() if "RssAnon" in line)


def to_int8(folder: Path, out: Path) -> Path:
    """Make the int8 index of the same text by rounding the float16 one: the same but for time."""
    if out.is_dir():
        return out
    index = TokenIndex.open(folder)
    out.mkdir()
    for name, array in index.arrays.items():
        if not name.startswith(("vectors", "scales")):
            np.save(out / f"{name}.npy", array)
    for space in index.meta.spaces:
        name = slug(space.name)
        vectors = GrowingArray(out / f"vectors-{name}.npy", Column("int8", (index.meta.dim,)))
        scales = GrowingArray(out / f"scales-{name}.npy", Column(np.float32))
        own = index.arrays[f"vectors-{name}"]
        for first in range(0, len(own), 65536):
            rows = slice(first, first + 65536)
            exact = own[rows].astype(np.float32) * index.arrays[f"scales-{name}"][rows, None]
            small, scale = rounded(exact, "int8")
            vectors.append(small)
            scales.append(scale)
        vectors.finish()
        scales.finish()
    dataclasses.replace(index.meta, numbers="int8").write(out)
    return out


# ------------------------------------------------------------------------------------- agreement


def agreement(args: argparse.Namespace) -> dict[str, Any]:
    """Compare the 10 nearest tokens of rounded vectors with those of float32, over a sample."""
    sample = args.work / "sample.txt"
    sample.write_bytes(args.text.read_bytes()[:SAMPLE_BYTES].rpartition(b"\n")[0] + b"\n")
    elmo = elmokit.load(device="cpu", precision="fast")
    indexes = {}
    for numbers in ("float16", "int8"):
        out = args.work / f"sample-{numbers}"
        settings = IndexSettings(split=True, numbers=numbers)  # type: ignore[arg-type]
        build_index(elmo, [sample], out, settings, resume=True)
        indexes[numbers] = TokenIndex.open(out)
    index = indexes["float16"]
    ends = index.arrays["ends"].tolist()
    words = [index.word(v) for v in index.arrays["words"].tolist()]
    sentences = [words[a:z] for a, z in zip([0, *ends], ends, strict=False)]
    layers = np.concatenate([v.layers for v in elmo.stream(sentences)], axis=1)
    chosen = sorted(random.Random(0).sample(range(index.tokens), QUERIES))
    asked = [Query(index.token(n).at, layers[:, n]) for n in chosen]
    figures: dict[str, Any] = {"tokens": index.tokens, "queries": QUERIES}
    for space in every_space(3):
        vectors = unit(space.of(layers))
        cosines = vectors[chosen] @ vectors.T
        cosines[np.arange(QUERIES), chosen] = -2
        tenth = np.sort(cosines, axis=1)[:, -10]
        for numbers, index in indexes.items():
            found = index.search(asked, k=11, spaces=[space], rules=Rules(distinct="token"))
            right, errors = 0, []
            for row, answer in enumerate(found):
                hits = [h for h in answer.lists[space.name] if h.token != chosen[row]][:10]  # type: ignore[attr-defined]
                exact = cosines[row, [h.token for h in hits]]  # type: ignore[attr-defined]
                right += int((exact >= tenth[row] - 1e-6).sum())
                errors.append(np.abs(exact - [h.score for h in hits]).max())
            figures.setdefault(numbers, {})[space.name] = {
                "of_the_10_nearest": round(right / (10 * QUERIES), 4),
                "largest_error_of_a_cosine": round(float(max(errors)), 5),
            }
    return figures


# ------------------------------------------------------------------------------------------ table


def table(figures: dict[str, Any]) -> list[str]:
    """Return the table of docs/how-to/search.md."""
    build, ann = figures["build"], figures["ann"]
    lines = ["| | float16 | int8 |", "|---|---|---|"]
    both = [figures["float16"], figures["int8"]]
    agree = [figures["agreement"][numbers] for numbers in ("float16", "int8")]

    def row(label: str, cells: list[str]) -> None:
        lines.append(f"| {label} | {' | '.join(cells)} |")

    row("on disk", [f"{f['bytes'] / 1e9:.2f} GB" for f in both])
    for label, name in (
        ("a query, top layer", "top"),
        ("a query, three layers and the average", "every_layer_and_average"),
        ("a query, the same word only", "same_word"),
        ("32 queries together, top layer", "32_queries"),
    ):
        row(label, [f"{f[name]['cpu']:.2f} s" for f in both])
    for space in agree[0]:
        cells = [f"{a[space]['of_the_10_nearest']:.1%}" for a in agree]
        row(f"of the 10 nearest by float32, {space}", cells)
    told = ann["ann"]["layer 2"]
    return [
        f"{build['tokens']:,} tokens, {build['sentences']:,} sentences, {build['words']:,} words; "
        f"{build['cpu_seconds']} s, {build['peak_mb']:,} MB at most.",
        "",
        *lines,
        "",
        f"faiss, top layer: {told['kind']}, {told['probes']} cells looked into, recall "
        f"{told['recall_at_10']:.3f}; made in {ann['cpu_seconds']} s with {ann['peak_mb']:,} MB; "
        f"a query takes {figures['ann_queries']['top']['cpu'] * 1000:.0f} ms.",
    ]


if __name__ == "__main__":
    main()
