"""Compare ONNX with PyTorch on the bundled model: accuracy, size, speed.

Needs: pip install 'elmokit[onnx]' and the example text of the repository.

In each round, every variant reads the same text once, so that other processes affect all variants
equally. The fastest round counts. Times are CPU seconds of one thread.

Run as: OMP_NUM_THREADS=1 python recipes/onnx-figures.py
Takes two minutes of CPU time. Writes results/onnx.json and prints the tables of
docs/how-to/onnx.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch

import elmokit
from elmokit.embed.bench import EXAMPLE, BenchText, read_text
from elmokit.embed.embedder import Embedder
from elmokit.embed.onnx_export import export
from elmokit.sources.resolve import load_parts

TOKENS = 6000
N_SINGLE = 60  # number of sentences that are embedded individually
STARTUP_SCRIPT = """
import sys, time
start = time.process_time()
import elmokit
elmokit.load(sys.argv[1]).embed("Amen")
seconds = time.process_time() - start
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(seconds, int(peak.split()[1]) / 1024)
"""


def main() -> None:
    """Run all measurements, then write and print the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/onnx.json"))
    args = parser.parse_args()
    if os.environ.get("OMP_NUM_THREADS") != "1":
        raise SystemExit("Set OMP_NUM_THREADS=1. The times must be those of one thread.")
    torch.set_num_threads(1)
    text = read_text(EXAMPLE, TOKENS)
    with tempfile.TemporaryDirectory() as work:
        folders = {storage: Path(work) / storage for storage in ("float32", "int8")}
        for storage, folder in folders.items():
            export(load_parts(), folder, storage=storage)
        models: dict[str, Embedder] = {
            "torch exact": elmokit.load(device="cpu"),
            "torch fast": elmokit.load(device="cpu", precision="fast"),
            "onnx float32": elmokit.load(folders["float32"], backend="onnx"),
            "onnx int8": elmokit.load(folders["int8"], backend="onnx"),
        }
        result = {
            "command": "OMP_NUM_THREADS=1 python recipes/onnx-figures.py",
            "date": datetime.date.today().isoformat(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores, shared",
            "threads": 1,
            "versions": {"torch": torch.__version__, "onnxruntime": onnxruntime.__version__},
            "text": text.describe(),
            "megabytes": {
                name: round(sum(path.stat().st_size for path in f.iterdir()) / 1e6, 1)
                for name, f in folders.items()
            },
            "error": {
                name: vector_errors(models["torch exact"], model, text)
                for name, model in models.items()
                if name != "torch exact"
            },
            "speed": measure_speed(models, text, args.rounds),
            "open": {
                "torch": measure_startup("english", args.rounds),
                **{
                    f"onnx {name}": measure_startup(str(f), args.rounds)
                    for name, f in folders.items()
                },
            },
        }
    args.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print_tables(result)


def vector_errors(exact: Embedder, other: Embedder, text: BenchText) -> list[dict[str, float]]:
    """Return the differences from the exact vectors of a text, by layer."""
    exact_layers, other_layers = (
        np.concatenate(model.compute(text.sentences), axis=1) for model in (exact, other)
    )
    lengths = np.linalg.norm(exact_layers, axis=-1) * np.linalg.norm(other_layers, axis=-1)
    cosines = (exact_layers * other_layers).sum(axis=-1) / lengths
    return [
        {
            "largest_difference": float(np.abs(a - b).max()),
            "mean_cosine": round(float(c.mean()), 6),
            "worst_cosine": round(float(c.min()), 6),
        }
        for a, b, c in zip(exact_layers, other_layers, cosines, strict=True)
    ]


def measure_speed(models: dict[str, Embedder], text: BenchText, rounds: int) -> dict[str, Any]:
    """Measure tokens per CPU second, in batches and for single sentences."""
    modes = {
        "batches": [text.sentences],
        "one by one": [[sentence] for sentence in text.sentences[:N_SINGLE]],
    }
    best: dict[str, dict[str, float]] = {mode: dict.fromkeys(models, 1e9) for mode in modes}
    for _ in range(rounds):
        for mode, calls in modes.items():
            for name, model in models.items():
                model.cache.clear()  # type: ignore[attr-defined]
                start = time.process_time()
                for sentences in calls:
                    model.compute(sentences)
                best[mode][name] = min(best[mode][name], time.process_time() - start)
    return {
        mode: {
            name: {
                "tokens_per_cpu_second": round(count_tokens(calls) / best[mode][name]),
                "times_torch_exact": round(best[mode]["torch exact"] / best[mode][name], 2),
            }
            for name in models
        }
        for mode, calls in modes.items()
    }


def count_tokens(calls: list[list[list[str]]]) -> int:
    """Return the number of tokens in all calls."""
    return sum(len(sentence) for sentences in calls for sentence in sentences)


def measure_startup(model: str, rounds: int) -> dict[str, float]:
    """Measure the CPU seconds and memory of a process that embeds one word."""
    command = [sys.executable, "-c", STARTUP_SCRIPT, model]
    lines = [subprocess.run(command, capture_output=True, check=True).stdout for _ in range(rounds)]
    seconds, memory = min(tuple(map(float, line.split())) for line in lines)
    return {"cpu_seconds": round(seconds, 2), "peak_mb": round(memory)}


def print_tables(result: dict[str, Any]) -> None:
    """Print the tables of the guide."""
    lines = [
        f"| {name} | {j} | {row['largest_difference']:.1e} | {row['mean_cosine']:.6f} | "
        f"{row['worst_cosine']:.6f} |"
        for name, layers in result["error"].items()
        for j, row in enumerate(layers)
    ]
    for mode, rows in result["speed"].items():
        for name, row in rows.items():
            cells = f"{row['tokens_per_cpu_second']:,} | {row['times_torch_exact']}"
            lines.append(f"| {mode} | {name} | {cells} |")
    for name, row in result["open"].items():
        lines.append(f"| {name} | {row['cpu_seconds']} | {row['peak_mb']:,} |")
    sys.stdout.write("\n".join([*lines, str(result["megabytes"]), ""]))


if __name__ == "__main__":
    main()
