"""Worker for elmokit."""

from __future__ import annotations

import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from protocol import memory, serve

import elmokit
from elmokit.embed.loading import load
from elmokit.embed.model import ElmoModel


class Worker:
    """Holds a model. Each public method handles one kind of request."""

    model: ElmoModel

    def load(
        self,
        model: str | None,
        weights: str | None = None,
        precision: str = "exact",
        device: str = "auto",
        threads: int | None = None,
    ) -> dict[str, Any]:
        """Load a model."""
        if threads is not None:
            torch.set_num_threads(threads)
        begin = time.perf_counter()
        self.model = load(model, weights, device, precision)
        versions = {
            "elmokit": elmokit.__version__,
            "torch": torch.__version__,
            "python": platform.python_version(),
        }
        return {"load_s": time.perf_counter() - begin, "versions": versions, **memory()}

    def time(self, sentences: list[list[str]], batch: int, cold: bool = False) -> dict[str, Any]:
        """Embed sentences, `batch` per call. `cold` clears the token cache first."""
        cache = self.model.cache
        if cold:
            cache.clear()
        hits, misses = cache.hits, cache.misses
        begin = time.perf_counter()
        for start in range(0, len(sentences), batch):
            self.model.embed(sentences[start : start + batch])
        return {
            "seconds": time.perf_counter() - begin,
            "tokens": sum(map(len, sentences)),
            "hits": cache.hits - hits,
            "misses": cache.misses - misses,
        }

    def vectors(self, sentences: list[list[str]], out: str) -> dict[str, Any]:
        """Write the layers of sentences, shape (L + 1, N, 2D)."""
        np.save(Path(out), np.concatenate([v.layers for v in self.model.embed(sentences)], axis=1))
        return {}


if __name__ == "__main__":
    worker = Worker()
    serve(load=worker.load, time=worker.time, vectors=worker.vectors)
