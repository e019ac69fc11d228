"""Measure the biLM on a GPU: throughput on batches of equal and mixed lengths, and latency.

The token vectors are already on the device. `elmo bench embed --device cuda` measures embedding
text.

    python benchmarks/gpu_reader.py [PRESET]        takes half a minute on one H200
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from elmokit.model.bilm import BiLM
from elmokit.model.kernels.cuda_engine import CudaEngine
from elmokit.model.packing import Packing
from elmokit.presets import preset

DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
LENGTH = 25
ROWS = (128, 512, 1024, 2048, 4096)


def median_seconds(work: Callable[[], object], rounds: int) -> float:
    """Return the median time of `work`, after two warm-up runs."""
    times = []
    for number in range(rounds + 2):
        torch.cuda.synchronize()
        before = time.perf_counter()
        work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - before)
        if number == 1:
            times.clear()
    return float(np.median(times))


def token_vectors(packing: Packing, dim: int) -> torch.Tensor:
    """Return random token vectors x_k."""
    return 0.5 * torch.randn(packing.n_tokens, dim, device="cuda")


def main(name: str) -> None:
    """Run the benchmark and print the results as JSON."""
    torch.manual_seed(0)
    bilm = BiLM(preset(name)).cuda().eval().requires_grad_(False)
    dim = bilm.config.lstm.projection_dim
    single = Packing.of([22])  # 20 tokens and the sentence boundaries
    rng = np.random.default_rng(0)
    natural = np.clip(rng.lognormal(3.0, 0.6, 2048).round(), 3, 120).astype(int)
    packings = {f"{rows} x {LENGTH}": Packing.of([LENGTH] * rows) for rows in ROWS}
    packings["2048, ragged"] = Packing.of(natural)
    compared = Packing.of(natural[:256])
    x_compared = token_vectors(compared, dim)
    exact, _ = CudaEngine(bilm).contextualize(x_compared, compared)
    report: dict[str, object] = {"device": torch.cuda.get_device_name(), "preset": name}
    for kind, dtype in DTYPES.items():
        engine = CudaEngine(bilm, dtype)
        layers, _ = engine.contextualize(x_compared, compared)
        cosine = torch.cosine_similarity(exact, layers, dim=-1)[1:]
        x = token_vectors(single, dim)
        latency = median_seconds(lambda engine=engine, x=x: engine.contextualize(x, single), 50)
        speeds = {}
        for label, packing in packings.items():
            x = token_vectors(packing, dim)
            elapsed = median_seconds(
                lambda engine=engine, x=x, p=packing: engine.contextualize(x, p), 6
            )
            speeds[label] = round(packing.n_tokens / elapsed)
        report[kind] = {
            "tokens_per_second": speeds,
            "milliseconds_one_sentence_of_20": round(1000 * latency, 3),
            "cosine_to_float32": {
                "mean": round(cosine.mean().item(), 6),
                "worst": round(cosine.min().item(), 6),
            },
        }
    sys.stdout.write(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "original")
