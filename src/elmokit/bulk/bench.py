"""Measure the throughput of `elmo embed` from text to each kind of output."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from elmokit.bulk.executors import Workers
from elmokit.bulk.run import embed_corpus
from elmokit.bulk.settings import EmbedSettings
from elmokit.progress import LogFn, Progress, no_log

#: Maps the name of each output in the report to its file or directory and its settings.
OUTPUTS: dict[str, tuple[str, EmbedSettings]] = {
    "Parquet, top": ("top", EmbedSettings(layer="top", dtype="float16")),
    "Parquet, all layers": ("all", EmbedSettings(layer="all", dtype="float16")),
    "HDF5, top": ("top.h5", EmbedSettings(layer="top", dtype="float16")),
}
_DISK_BLOCKS = 64
# After this number of tokens, all workers are busy.
_WARM_UP_TOKENS = 500_000


def measure(
    workers: Workers, text: str, directory: str | Path, log: LogFn = no_log
) -> dict[str, Any]:
    """Embed a text into each output, and remove the output after the measurement.

    Args:
        workers: The processes that embed the text.
        text: A text file with one sentence per line.
        directory: The directory for the outputs.
        log: Called with a message before each measurement.

    Returns:
        `disk_mb_per_second`, the speed of writing 1 GiB to disk (with fsync), and `outputs`. For
        each output, `tokens_per_second` is the speed of the entire run including loading the
        model, and `sustained_tokens_per_second` is the speed after the first 500,000 tokens.
        `stages` contains the busy time of each stage in seconds.
    """
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        log(f"Measuring the speed of writing to {directory}")
        rate = _disk_rate(Path(folder))
        rows = []
        for name, (output, settings) in OUTPUTS.items():
            log(f"Embedding {text} ({name})")
            rows.append({"output": name, **_measure(workers, text, Path(folder, output), settings)})
    return {"disk_mb_per_second": rate, "outputs": rows}


def _measure(workers: Workers, text: str, out: Path, settings: EmbedSettings) -> dict[str, Any]:
    reports: list[tuple[float, int]] = []

    def report(progress: Progress) -> None:
        reports.append((time.perf_counter(), progress.tokens))

    started = time.perf_counter()
    summary = embed_corpus(workers, [text], out, settings, on_progress=report)
    seconds = time.perf_counter() - started
    shutil.rmtree(out) if out.is_dir() else out.unlink()
    sustained = [(now, tokens) for now, tokens in reports if tokens >= _WARM_UP_TOKENS]
    rates = {"tokens_per_second": round(summary.tokens / seconds)}
    if len(sustained) > 1:
        (begin, before), (end, after) = sustained[0], sustained[-1]
        rates["sustained_tokens_per_second"] = round((after - before) / (end - begin))
    return {
        "tokens": summary.tokens,
        "seconds": round(seconds, 3),
        **rates,
        "mb_per_second": round(summary.written_bytes / seconds / 1e6, 1),
        "stages": summary.stages,
        "bottleneck": summary.bottleneck,
    }


def _disk_rate(folder: Path) -> float:
    """Return the speed of writing to disk (with fsync), in MB per second."""
    block = os.urandom(2**24)
    path = folder / "rate"
    started = time.perf_counter()
    with path.open("wb") as file:
        for _ in range(_DISK_BLOCKS):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    path.unlink()
    return round(_DISK_BLOCKS * len(block) / (time.perf_counter() - started) / 1e6)
