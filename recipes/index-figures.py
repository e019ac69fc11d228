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
PART_ROWS = 16384
FAISS_CELLS = 2048
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
    results = {
        "build": step("build", lambda: command(["index", str(args.text), "-o", folder, *common])),
        "queries": step("queries", lambda: queries(folder)),
        "ann": step("ann", lambda: command(["index", "-o", folder, "--ann", "top", "--json"])),
        "ann_queries": step("ann-queries", lambda: ann_queries(folder)),
        "faiss_and_parquet": step("faiss", lambda: faiss_and_parquet(folder, args.work / "faiss")),
    }
    metadata = {
        "command": "python recipes/index-figures.py TEXT --work FOLDER",
        "text": "Simple English Wikipedia, the first 5,750,000 bytes",
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, shared",
        "threads": torch.get_num_threads(),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "seed": 0,
        "elmokit": elmokit.__version__,
    }
    args.out.write_text(json.dumps({**metadata, **results}, indent=1) + "\n")
    for line in tables(results):
        sys.stdout.write(line + "\n")


def command(arguments: list[str | Path]) -> dict[str, Any]:
    """Run `elmo` and return its JSON output, CPU time and memory usage."""
    program = "from elmokit.cli.main import run; run()"
    before, clock = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    completed = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    summary = json.loads(completed.stdout)
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
    before = anonymous_mb()
    top = {"layer": TOP}
    results: dict[str, Any] = {"bytes": folder_bytes(folder), "tokens": index.n_tokens}
    results["top"] = measure_time(lambda _: index.neighbors([QUERY], elmo, **top), 5)
    results["every_layer_and_average"] = measure_time(lambda _: index.neighbors([QUERY], elmo), 3)
    same = NeighborFilter(words="same")
    results["same_word"] = measure_time(
        lambda _: index.neighbors([QUERY], elmo, filter=same, **top), 5
    )
    other = NeighborFilter(words="other", other_sentences=True)
    results["other_words"] = measure_time(
        lambda _: index.neighbors([QUERY], elmo, filter=other, **top), 5
    )
    query_ids = list(range(0, index.n_tokens, index.n_tokens // 32))[:32]
    results["32_queries"] = measure_time(lambda _: index.neighbors(query_ids, **top), 2)
    results["added_mb"] = anonymous_mb() - before
    return results


def ann_queries(folder: Path) -> dict[str, Any]:
    """Time approximate queries with and without filters."""
    index = TokenIndex.open(folder)
    query_ids = sample(index)
    index.neighbors([1], layer=TOP, ann=True)
    other = NeighborFilter(words="other", other_sentences=True)

    def query(i: int, filter: NeighborFilter | None = None) -> None:
        index.neighbors([int(query_ids[i])], layer=TOP, ann=True, filter=filter)

    return {
        "top": measure_time(query, 20),
        "other_words": measure_time(lambda i: query(i, other), 20),
    }


# -------------------------------------------------------------------------------- faiss and Parquet


def faiss_and_parquet(folder: Path, work: Path) -> dict[str, Any]:
    """Measure Parquet files and a faiss index with the same vectors of the top layer."""
    faiss.omp_set_num_threads(1)
    index = TokenIndex.open(folder)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    results: dict[str, Any] = {}
    results["write"] = measure_time_and_memory(lambda: write_parquet(index, work))
    results["parquet_bytes"] = folder_bytes(work)
    query_ids = sample(index)
    query_vectors = index.vectors(top_layer(index), query_ids.tolist())
    results["exact"] = measure_time(lambda i: scan_parquet(work, query_vectors[i]), 5)
    results["flat"] = measure_time_and_memory(lambda: build_flat(index, work))
    flat: Any = faiss.read_index(str(work / "flat.faiss"), faiss.IO_FLAG_MMAP)
    results["flat_query"] = measure_time(lambda i: flat.search(query_vectors[i][None], 11), 5)
    results["ann"] = measure_time_and_memory(lambda: build_faiss(index, work))
    results["bytes"] = folder_bytes(work)
    ann_index: Any = faiss.read_index(str(work / "top.faiss"), faiss.IO_FLAG_MMAP)
    truth = [
        index.neighbors([int(n)], layer=TOP, filter=NeighborFilter(distinct="token"))
        for n in query_ids
    ]
    tenth_scores = [exact[0].by_layer["layer 2"][-1].score for exact in truth]
    ann_index.nprobe = 1
    while True:
        n_correct = 0
        for row, number in enumerate(query_ids):
            scores = [
                s for n, s in search_faiss(index, ann_index, query_vectors[row]) if n != number
            ][:10]
            n_correct += sum(score >= tenth_scores[row] - 1e-6 for score in scores)
        results["recall_at_10"] = n_correct / (10 * len(query_ids))
        if results["recall_at_10"] >= RECALL or ann_index.nprobe >= FAISS_CELLS:
            break
        ann_index.nprobe *= 2
    results["probes"] = ann_index.nprobe
    results["ann_query"] = measure_time(
        lambda i: search_faiss(index, ann_index, query_vectors[i]), 20
    )
    return results


def top_layer(index: TokenIndex) -> LayerChoice:
    """Return the stored top layer."""
    return index.parse_layers(TOP)[0]


def vector_parts(index: TokenIndex) -> Iterator[tuple[Any, FloatArray]]:
    """Yield the vectors of the top layer in parts, with the other columns of the tokens."""
    name = column_name(top_layer(index))
    for first in range(0, index.n_tokens, PART_ROWS):
        rows = range(first, min(first + PART_ROWS, index.n_tokens))
        columns = ["token", "word", "sentence_hash", "position", name]
        table = index.tables["tokens"].take(list(rows), columns=columns).combine_chunks()
        vectors = table.column(name).chunk(0).flatten().to_numpy().reshape(len(rows), -1)
        yield table.drop_columns([name]), vectors.astype(np.float32)


def write_parquet(index: TokenIndex, work: Path) -> None:
    """Write one file per part."""
    for number, (table, vectors) in enumerate(vector_parts(index)):
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
    for _, vectors in vector_parts(index):
        flat.add(normalize(vectors))
    faiss.write_index(flat, str(work / "flat.faiss"))


def build_faiss(index: TokenIndex, work: Path) -> None:
    """Build an inverted file index with one byte per dimension."""
    ann_index = faiss.index_factory(
        index.meta.dim, f"IVF{FAISS_CELLS},SQ8", faiss.METRIC_INNER_PRODUCT
    )
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(index.n_tokens, size=40 * FAISS_CELLS, replace=False)).tolist()
    ann_index.train(index.vectors(top_layer(index), rows))
    for _, vectors in vector_parts(index):
        ann_index.add(normalize(vectors))
    faiss.write_index(ann_index, str(work / "top.faiss"))


def search_faiss(index: TokenIndex, ann_index: Any, query: FloatArray) -> list[tuple[int, float]]:
    """Search 110 candidates and return the 11 nearest tokens by their exact scores."""
    _, (candidates,) = ann_index.search(query[None], 110)
    candidates = np.sort(candidates[candidates >= 0])
    best = TopK(11)
    best.add((index.vectors(top_layer(index), candidates.tolist()) @ query)[None], candidates)
    return best.row(0)


# ----------------------------------------------------------------------------------- measurements


def sample(index: TokenIndex) -> Any:
    """Draw the tokens that are used as queries."""
    return np.sort(np.random.default_rng(1).choice(index.n_tokens, QUERIES, replace=False))


def measure_time(work: Callable[[int], object], times: int) -> dict[str, float]:
    """Return the median CPU and elapsed seconds of several runs."""
    cpu, wall = [], []
    for i in range(times):
        processor, clock = time.process_time(), time.monotonic()
        work(i)
        cpu.append(time.process_time() - processor)
        wall.append(time.monotonic() - clock)
    return {"cpu": round(float(np.median(cpu)), 4), "wall": round(float(np.median(wall)), 4)}


def measure_time_and_memory(work: Callable[[], object]) -> dict[str, float]:
    """Return the seconds of one run, and the peak growth of memory in MB."""
    before, stop = anonymous_mb(), threading.Event()
    peak = before

    def watch() -> None:
        nonlocal peak
        while not stop.wait(0.05):
            peak = max(peak, anonymous_mb())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        seconds = measure_time(lambda _: work(), 1)
    finally:
        stop.set()
        watcher.join()
    return {**seconds, "peak_mb": peak - before}


def anonymous_mb() -> int:
    """Return the anonymous memory of this process in MB (without mapped files)."""
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) // 1024 for line in status.splitlines() if "RssAnon" in line)


# ----------------------------------------------------------------------------------------- tables


def tables(results: dict[str, Any]) -> list[str]:
    """Return the tables of docs/how-to/search.md."""
    build, exact, ann = results["build"], results["queries"], results["ann"]
    external, approximate = results["faiss_and_parquet"], results["ann_queries"]
    ann_info = ann["ann"]["layer 2"]
    lines = [
        f"{build['tokens']:,} tokens, {build['sentences']:,} sentences, "
        f"{build['words']:,} distinct words; built in {build['cpu_seconds']} s with at most "
        f"{build['peak_mb']:,} MB of memory; {exact['bytes'] / 1e9:.2f} GB on disk.",
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
        lines.append(f"| {label} | {exact[key]['cpu']:.2f} s |")
    lines += [
        f"| approximate, top layer | {1000 * approximate['top']['cpu']:.0f} ms |",
        f"| approximate, other words in other sentences | "
        f"{1000 * approximate['other_words']['cpu']:.0f} ms |",
        "",
        "| Top layer only, one thread | elmokit (Lance) | Parquet scan | faiss |",
        "|---|---|---|---|",
        f"| exact query | {exact['top']['cpu']:.2f} s | {external['exact']['cpu']:.1f} s "
        f"| {external['flat_query']['cpu']:.3f} s |",
        f"| build an approximate index | {ann['cpu_seconds']} s | | "
        f"{external['ann']['cpu']:.0f} s |",
        f"| memory for building it | {ann['peak_mb']:,} MB | | "
        f"{external['ann']['peak_mb']:,.0f} MB |",
        f"| recall@10 | {ann_info['recall_at_10']:.3f} | | {external['recall_at_10']:.3f} |",
        f"| approximate query | {1000 * approximate['top']['cpu']:.0f} ms | | "
        f"{1000 * external['ann_query']['cpu']:.0f} ms |",
    ]
    return lines


if __name__ == "__main__":
    main()
