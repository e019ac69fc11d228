"""The process that tries the candidates for `fast.py`, which may crash it: KIND ...

It prints one line of JSON per candidate, as soon as the result is known.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import torch

from elmokit.config import BiLMConfig, LstmConfig
from elmokit.embed.fast import LEAST_COSINE, reader_of
from elmokit.model.bilm import BiLM
from elmokit.model.kernels.cpu_native import NativeError
from elmokit.model.packing import Packing

# Large enough to use the same kernels as actual layers, small enough for a tenth of a second.
_SHAPE = BiLMConfig(LstmConfig(dim=1024, projection_dim=256), None, n_words=4)
_SENTENCES = (12, 9) * 16


def answer(kind: str, bilm: BiLM) -> dict[str, Any]:
    """Try one candidate; return its time, or why it does not work."""
    packing = Packing.of(_SENTENCES)
    x = torch.randn(packing.n_tokens, _SHAPE.lstm.projection_dim)
    try:
        reader = reader_of(kind, bilm)
    except NativeError as error:
        return {"failed": str(error)}
    with torch.inference_mode():
        expected, _ = bilm.contextualize(x, packing)
        layers, _ = reader.contextualize(x, packing)
        cosine = torch.cosine_similarity(expected, layers, dim=-1).min().item()
        if not cosine >= LEAST_COSINE:
            return {"failed": f"its results are wrong (cosine {cosine:.4f})"}
        times = []
        for _ in range(5):
            before = time.perf_counter()
            reader.contextualize(x, packing)
            times.append(time.perf_counter() - before)
    return {"seconds": min(times)}


def main(kinds: list[str]) -> None:
    """Print the result of each candidate."""
    torch.manual_seed(0)
    bilm = BiLM(_SHAPE).eval().requires_grad_(False)
    for kind in kinds:
        sys.stdout.write(json.dumps(answer(kind, bilm)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
