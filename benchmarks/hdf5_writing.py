"""Measure the CPU time of writing .h5 files with elmokit's writer and with h5py's low-level API.

    python benchmarks/hdf5_writing.py [--out results/hdf5-writing.json]

Both write the same datasets and attributes: random float16 vectors with the shape of the bundled
model, and 23 tokens per sentence on average. Times are CPU times of one thread, the minimum over
several rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5p, h5s, h5t

from elmokit.bulk.formats import hdf5
from elmokit.bulk.formats.block import Block, make_block
from elmokit.bulk.formats.layout import Layout
from elmokit.embed.blocks import TokenIds

BLOCKS, SENTENCES, LAYERS, DIM, WORDS = 4, 2200, 3, 512, 8000


def random_block(rng: np.random.Generator, layout: Layout) -> Block:
    """Return the vectors of one chunk of text."""
    lengths = rng.integers(1, 46, SENTENCES)
    n = int(lengths.sum())
    vectors = rng.normal(size=(LAYERS if layout.layer == "all" else 1, n, DIM)).astype(np.float16)
    arrays = {
        "vectors": vectors,
        "places": np.zeros((SENTENCES, 3), np.int64),
    }
    words = [f"word{i}" for i in range(WORDS)]
    tokens = TokenIds(words, rng.integers(0, WORDS, n, np.int32), lengths)
    texts = [f"the text of a sentence {number}" for number in rng.random(SENTENCES)]
    return make_block(tokens, arrays, texts, {})


def write_with_h5py(path: Path, blocks: list[Block], layout: Layout) -> None:
    """Write the datasets and attributes with h5py's low-level API, its fastest interface."""
    options = h5p.create(h5p.DATASET_CREATE)
    options.set_obj_track_times(False)
    number_type = h5t.py_create(np.dtype(layout.dtype), logical=True)
    scalar = h5s.create(h5s.SCALAR)
    number = 0
    with h5py.File(path, "w") as file:
        for block in blocks:
            vectors = block.read("vectors")
            vectors = vectors if layout.layer == "all" else vectors[0]
            quoted = [json.dumps(word) for word in block.words()]
            tokens = [quoted[i] for i in block.read("ids").tolist()]
            end = 0
            for length in block.read("lengths").tolist():
                begin, end = end, end + length
                values = np.ascontiguousarray(vectors[..., begin:end, :])
                space = h5s.create_simple(values.shape)
                dataset = h5d.create(file.id, str(number).encode(), number_type, space, options)
                dataset.write(h5s.ALL, h5s.ALL, values)
                text = np.array(f"[{', '.join(tokens[begin:end])}]".encode())
                text_type = h5t.py_create(text.dtype, logical=True)
                h5a.create(dataset, b"tokens", text_type, scalar).write(text)
                number += 1


def microseconds_per_sentence(write: Callable[[], Any], rounds: int) -> float:
    """Return the minimum CPU time per sentence in microseconds."""
    best = float("inf")
    for _ in range(rounds):
        started = time.process_time()
        write()
        best = min(best, time.process_time() - started)
    return round(best / (BLOCKS * SENTENCES) * 1e6, 1)


def main() -> None:
    """Run the benchmark and print the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--directory",
        type=Path,
        help="directory for the files. Default: the directory for temporary files",
    )
    options = parser.parse_args()
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        path = Path(folder, "vectors.h5")
        for layer in ("top", "all"):
            layout = Layout(layer, "float16", LAYERS, DIM)
            rng = np.random.default_rng(0)
            blocks = [random_block(rng, layout) for _ in range(BLOCKS)]
            rows[layer] = {
                "elmokit": microseconds_per_sentence(
                    lambda b=blocks, lay=layout: hdf5.write(path, b, lay, dict), options.rounds
                ),
                "h5py, without sentence_to_index": microseconds_per_sentence(
                    lambda b=blocks, lay=layout: write_with_h5py(path, b, lay), options.rounds
                ),
            }
    result = {
        "what": "CPU microseconds per sentence of writing an .h5 file, one thread",
        "command": "python benchmarks/hdf5_writing.py --directory /dev/shm",
        "sentences": BLOCKS * SENTENCES,
        "tokens_per_sentence": 23,
        "machine": f"{platform.system()} {platform.machine()}, 1 of {os.cpu_count()} cores, shared",
        "versions": {"python": platform.python_version(), "h5py": h5py.__version__},
        "date": time.strftime("%Y-%m-%d"),
        "seed": 0,
        "microseconds_per_sentence": rows,
    }
    text = json.dumps(result, indent=1) + "\n"
    sys.stdout.write(text)
    if options.out:
        options.out.write_text(text)


if __name__ == "__main__":
    main()
