"""Compare the vectors of `precision="fast"` with the exact ones on held-out text. Writes JSON.

Needs: a CPU or GPU that supports `fast` (see elmo doctor), and plain text with one paragraph per
line (for our results: `valid.txt`, the held-out text of the bundled model). Every 20th sentence is
used, so that all parts of the text are represented.

Run as: OMP_NUM_THREADS=1 python recipes/precision.py valid.txt
Takes about a minute and writes results/english/precision.json.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

import elmokit
from elmokit.bulk.input import read_sentences
from elmokit.embed.vectors import cosines


def main() -> None:
    """Embed the sample in both precisions and compare the vectors."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("text", type=Path, help="plain text, one paragraph per line")
    parser.add_argument("--model", help="path or name; default: the bundled model")
    parser.add_argument("--every", type=int, default=20, help="use every Nth sentence")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=Path("results/english/precision.json"))
    args = parser.parse_args()
    sentences = [tokens for tokens, _, _ in read_sentences([args.text], split=True)][:: args.every]
    exact = elmokit.load(args.model, device=args.device)
    fast = elmokit.load(args.model, device=args.device, precision="fast")
    if fast.precision != "fast":
        raise SystemExit("This machine does not support precision='fast'.")
    by_layer: list[list[np.ndarray[Any, Any]]] = [[] for _ in range(exact.config.n_layers)]
    for exact_vectors, fast_vectors in zip(
        exact.stream(sentences), fast.stream(sentences), strict=True
    ):
        for parts, a, b in zip(by_layer, exact_vectors.layers, fast_vectors.layers, strict=True):
            parts.append(cosines(a, b))
    layers = [np.concatenate(parts) for parts in by_layer]
    result = {
        "command": f"python recipes/precision.py {args.text.name} --every {args.every}",
        "model": exact.metadata.get("name") or Path(exact.source or "model").name,
        "device": exact.device.type,
        "machine": f"{os.cpu_count()} CPU cores, {platform.machine()}, "
        f"Python {platform.python_version()}, torch {torch.__version__}",
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "sentences": len(sentences),
        "tokens": len(layers[0]),
        "cosine": {
            f"layer {j}": {"mean": round(float(c.mean()), 6), "min": round(float(c.min()), 6)}
            for j, c in enumerate(layers)
        },
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps(result, indent=1))  # noqa: T201


if __name__ == "__main__":
    main()
