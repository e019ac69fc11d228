"""Compare a token index of a million tokens with faiss and Parquet: time, memory and disk usage.

Needs: pip install 'elmokit[search]' faiss-cpu, a text of about 6 MB (published results: Simple
English Wikipedia), and 6 GB of disk space for --work. Steps with results in --work are skipped.

With the bundled model and one thread, the index takes 5 minutes, each approximate index 2 to 6
minutes, and the rest 2 minutes. Tables show CPU seconds, because the machine may be busy. The JSON
file also contains the elapsed time.

Run as: OMP_NUM_THREADS=1 python recipes/index-figures.py TEXT --work FOLDER
Writes results/index.json and prints the tables of docs/how-to/search.md. Equivalent commands:
    elmo index TEXT -o FOLDER --split --precision fast --json
    elmo index -o FOLDER --ann top --json
    elmo neighbors FOLDER --query 'He will [play] in the final .'
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

import elmokit
from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.topk import TopK
from elmokit.embed.vectors import FloatArray, normalize
from elmokit.search.files import column_name, vector_column
from elmokit.search.index import TokenIndex, folder_bytes
from elmokit.search.neighbors import NeighborFilter

QUERY = "He will [play] in the final ."
TOP = "top"
QUERIES = 200
PART = 16384
CELLS = 2048  # of faiss
RECALL = 0.95


def main() -> None:
    """Run the missing steps, then write and print all results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("results/index.json"))
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    folder = args.work / "index"

    def step(name: str, measure: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        path = args.work / f"{name}.json"
        if not path.is_file():
            path.write_text(json.dumps(measure(), indent=1))
        return dict(json.loads(path.read_text()))

    common = ["--split", "--precision", "fast", "--json", "--quiet", "--resume"]
    figures = {
        "build": step("build", lambda: command(["index", str(args.text), "-o", folder, *common])),
        "queries": step("queries", lambda: queries(folder)),
        "ann": step("ann", lambda: command(["index", "-o", folder, "--ann", "top", "--json"])),
        "ann_queries": step("ann-queries", lambda: ann_queries(folder)),
        "faiss_and_parquet": step("faiss", lambda: faiss_and_parquet(folder, args.work / "faiss")),
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
    for line in tables(figures):
        sys.stdout.write(line + "\n")


def command(arguments: list[str | Path]) -> dict[str, Any]:
    """Run `elmo` and return its JSON output, CPU time and memory usage."""
    program = "from elmokit.cli.main import run; run()"
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    summary = json.loads(done.stdout)
    summary.pop("output", None)
    return {
        **summary,
        "cpu_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime),
        "wall_seconds": round(time.monotonic() - clock),
        "peak_mb": round(after.ru_maxrss / 1024),
    }


# --------------------------------------------------------------------------------------- queries


def queries(folder: Path) -> dict[str, Any]:
    """Time exact queries. The files are in the page cache."""
    elmo = elmokit.load(device="cpu")
    index = TokenIndex.open(folder)
    elmo.neighbors(QUERY, index)
    before = own_mb()
    top = {"layer": TOP}
    figures: dict[str, Any] = {"bytes": folder_bytes(folder), "tokens": index.n_tokens}
    figures["top"] = timed(lambda _: index.neighbors([QUERY], elmo, **top), 5)
    figures["every_layer_and_average"] = timed(lambda _: index.neighbors([QUERY], elmo), 3)
    same = NeighborFilter(words="same")
    figures["same_word"] = timed(lambda _: index.neighbors([QUERY], elmo, filter=same, **top), 5)
    other = NeighborFilter(words="other", other_sentences=True)
    figures["other_words"] = timed(lambda _: index.neighbors([QUERY], elmo, filter=other, **top), 5)
    numbers = list(range(0, index.n_tokens, index.n_tokens // 32))[:32]
    figures["32_queries"] = timed(lambda _: index.neighbors(numbers, **top), 2)
    figures["added_mb"] = own_mb() - before
    return figures


def ann_queries(folder: Path) -> dict[str, Any]:
    """Time approximate queries with and without filters."""
    index = TokenIndex.open(folder)
    numbers = sample(index)
    index.neighbors([1], layer=TOP, ann=True)
    other = NeighborFilter(words="other", other_sentences=True)

    def query(i: int, filter: NeighborFilter | None = None) -> None:
        index.neighbors([int(numbers[i])], layer=TOP, ann=True, filter=filter)

    return {"top": timed(query, 20), "other_words": timed(lambda i: query(i, other), 20)}


# -------------------------------------------------------------------------------- faiss and Parquet


def faiss_and_parquet(folder: Path, work: Path) -> dict[str, Any]:
    """Measure Parquet files and a faiss index with the same vectors of the top layer."""
    faiss.omp_set_num_threads(1)
    index = TokenIndex.open(folder)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    figures: dict[str, Any] = {}
    figures["write"] = phase(lambda: write_parquet(index, work))
    figures["parquet_bytes"] = folder_bytes(work)
    numbers = sample(index)
    asked = index.vectors(top_layer(index), numbers.tolist())
    figures["exact"] = timed(lambda i: scan_parquet(work, asked[i]), 5)
    figures["flat"] = phase(lambda: build_flat(index, work))
    flat: Any = faiss.read_index(str(work / "flat.faiss"), faiss.IO_FLAG_MMAP)
    figures["flat_query"] = timed(lambda i: flat.search(asked[i][None], 11), 5)
    figures["ann"] = phase(lambda: build_faiss(index, work))
    figures["bytes"] = folder_bytes(work)
    made: Any = faiss.read_index(str(work / "top.faiss"), faiss.IO_FLAG_MMAP)
    truth = [
        index.neighbors([int(n)], layer=TOP, filter=NeighborFilter(distinct="token"))
        for n in numbers
    ]
    tenth = [found[0].by_layer["layer 2"][-1].score for found in truth]
    made.nprobe = 1
    while True:
        right = 0
        for row, number in enumerate(numbers):
            scores = [s for n, s in search_faiss(index, made, asked[row]) if n != number][:10]
            right += sum(score >= tenth[row] - 1e-6 for score in scores)
        figures["recall_at_10"] = right / (10 * len(numbers))
        if figures["recall_at_10"] >= RECALL or made.nprobe >= CELLS:
            break
        made.nprobe *= 2
    figures["probes"] = made.nprobe
    figures["ann_query"] = timed(lambda i: search_faiss(index, made, asked[i]), 20)
    return figures


def top_layer(index: TokenIndex) -> LayerChoice:
    """Return the stored top layer."""
    return index.parse_layers(TOP)[0]


def vectors_of(index: TokenIndex) -> Iterator[tuple[Any, FloatArray]]:
    """Yield the vectors of the top layer in parts, with the other columns of the tokens."""
    name = column_name(top_layer(index))
    for first in range(0, index.n_tokens, PART):
        rows = range(first, min(first + PART, index.n_tokens))
        columns = ["token", "word", "sentence_hash", "position", name]
        table = index.tables["tokens"].take(list(rows), columns=columns).combine_chunks()
        vectors = table.column(name).chunk(0).flatten().to_numpy().reshape(len(rows), -1)
        yield table.drop_columns([name]), vectors.astype(np.float32)


def write_parquet(index: TokenIndex, work: Path) -> None:
    """Write one file per part."""
    for number, (table, vectors) in enumerate(vectors_of(index)):
        table = table.append_column("vector", vector_column(vectors))
        parquet.write_table(table, work / f"part-{number:06d}.parquet", compression="none")


def scan_parquet(work: Path, query: FloatArray) -> TopK:
    """Compare a query with all vectors."""
    best = TopK(10)
    for file in sorted(work.glob("*.parquet")):
        table = parquet.read_table(file, columns=["token", "vector"]).combine_chunks()
        values = table.column("vector").chunk(0).flatten()
        vectors = (
            torch.utils.dlpack.from_dlpack(pa.array(values)).view(len(table), -1).float().numpy()
        )
        lengths = np.sqrt(np.einsum("nd,nd->n", vectors, vectors))
        best.add((vectors @ query / lengths)[None], table.column("token").to_numpy())
    return best


def build_flat(index: TokenIndex, work: Path) -> None:
    """Build an index for exact search with float16 vectors."""
    flat = faiss.index_factory(index.meta.dim, "SQfp16", faiss.METRIC_INNER_PRODUCT)
    for _, vectors in vectors_of(index):
        flat.add(normalize(vectors))
    faiss.write_index(flat, str(work / "flat.faiss"))


def build_faiss(index: TokenIndex, work: Path) -> None:
    """Build an inverted file index with one byte per dimension."""
    made = faiss.index_factory(index.meta.dim, f"IVF{CELLS},SQ8", faiss.METRIC_INNER_PRODUCT)
    draw = np.random.default_rng(0)
    rows = np.sort(draw.choice(index.n_tokens, size=40 * CELLS, replace=False)).tolist()
    made.train(index.vectors(top_layer(index), rows))
    for _, vectors in vectors_of(index):
        made.add(normalize(vectors))
    faiss.write_index(made, str(work / "top.faiss"))


def search_faiss(index: TokenIndex, made: Any, query: FloatArray) -> list[tuple[int, float]]:
    """Search 110 candidates and return the 11 nearest tokens by their exact scores."""
    _, (candidates,) = made.search(query[None], 110)
    candidates = np.sort(candidates[candidates >= 0])
    best = TopK(11)
    best.add((index.vectors(top_layer(index), candidates.tolist()) @ query)[None], candidates)
    return best.row(0)


# ----------------------------------------------------------------------------------- measurements


def sample(index: TokenIndex) -> Any:
    """Draw the tokens that are used as queries."""
    return np.sort(np.random.default_rng(1).choice(index.n_tokens, QUERIES, replace=False))


def timed(work: Callable[[int], object], times: int) -> dict[str, float]:
    """Return the median CPU and elapsed seconds of several runs."""
    cpu, wall = [], []
    for i in range(times):
        processor, clock = time.process_time(), time.monotonic()
        work(i)
        cpu.append(time.process_time() - processor)
        wall.append(time.monotonic() - clock)
    return {"cpu": round(float(np.median(cpu)), 4), "wall": round(float(np.median(wall)), 4)}


def phase(work: Callable[[], object]) -> dict[str, float]:
    """Return the seconds of one run, and the peak growth of memory in MB."""
    before, stop = own_mb(), threading.Event()
    peak = before

    def watch() -> None:
        nonlocal peak
        while not stop.wait(0.05):
            peak = max(peak, own_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        seconds = timed(lambda _: work(), 1)
    finally:
        stop.set()
        watcher.join()
    return {**seconds, "peak_mb": peak - before}


def own_mb() -> int:
    """Return the anonymous memory of this process in MB."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) // 1024 for line in status.splitlines() if "RssAnon" in line)


# ----------------------------------------------------------------------------------------- tables


def tables(figures: dict[str, Any]) -> list[str]:
    """Return the tables of docs/how-to/search.md."""
    build, own, ann = figures["build"], figures["queries"], figures["ann"]
    other, near = figures["faiss_and_parquet"], figures["ann_queries"]
    about = ann["ann"]["layer 2"]
    lines = [
        f"{build['tokens']:,} tokens, {build['sentences']:,} sentences, {build['words']:,} words; "
        f"built in {build['cpu_seconds']} s with at most {build['peak_mb']:,} MB of memory; "
        f"{own['bytes'] / 1e9:.2f} GB on disk.",
        "",
        "| Query | CPU time |",
        "|---|---|",
    ]
    for label, key in (
        ("exact, top layer", "top"),
        ("exact, three layers and the average", "every_layer_and_average"),
        ("exact, top layer, only the same word", "same_word"),
        ("exact, top layer, other words in other sentences", "other_words"),
        ("exact, top layer, 32 queries at once", "32_queries"),
    ):
        lines.append(f"| {label} | {own[key]['cpu']:.2f} s |")
    lines += [
        f"| approximate, top layer | {1000 * near['top']['cpu']:.0f} ms |",
        f"| approximate, other words in other sentences | "
        f"{1000 * near['other_words']['cpu']:.0f} ms |",
        "",
        "| Top layer only, one thread | elmokit (Lance) | Parquet scan | faiss |",
        "|---|---|---|---|",
        f"| exact query | {own['top']['cpu']:.2f} s | {other['exact']['cpu']:.1f} s "
        f"| {other['flat_query']['cpu']:.3f} s |",
        f"| build an approximate index | {ann['cpu_seconds']} s | | {other['ann']['cpu']:.0f} s |",
        f"| memory for it | {ann['peak_mb']:,} MB | | {other['ann']['peak_mb']:,.0f} MB |",
        f"| recall@10 | {about['recall_at_10']:.3f} | | {other['recall_at_10']:.3f} |",
        f"| approximate query | {1000 * near['top']['cpu']:.0f} ms | | "
        f"{1000 * other['ann_query']['cpu']:.0f} ms |",
    ]
    return lines


if __name__ == "__main__":
    main()
