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

#: Name of the output, its file or directory, and what is stored.
OUTPUTS: dict[str, tuple[str, EmbedSettings]] = {
    "Parquet, top": ("top", EmbedSettings(layer="top", dtype="float16")),
    "Parquet, all layers": ("all", EmbedSettings(layer="all", dtype="float16")),
    "HDF5, top": ("top.h5", EmbedSettings(layer="top", dtype="float16")),
}
_DISK_BLOCKS = 64
# Number of tokens after which all workers are busy.
_STARTED = 500_000


def measure(
    workers: Workers, text: str, directory: str | Path, log: LogFn = no_log
) -> dict[str, Any]:
    """Embed a text into each output and remove the output.

    Args:
        workers: The processes that embed the text.
        text: A text file with one sentence per line.
        directory: Where outputs are written.
        log: Called with a message before each measurement.

    Returns:
        `disk_mb_per_second`, the rate of fsynced writes of 1 GiB; and `outputs`, for each its
        tokens/s (of the whole run with loading the model, and "sustained": after the first
        500,000 tokens), MB/s, and the busy seconds of each stage.
    """
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        log(f"{directory}: fsynced writes")
        rate = _disk_rate(Path(folder))
        rows = []
        for name, (output, settings) in OUTPUTS.items():
            log(f"{text}: {name}")
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
    sustained = [item for item in reports if item[1] >= _STARTED]
    rates = {"tokens_per_second": round(summary.tokens / seconds)}
    if len(sustained) > 1:
        (begin, before), (end, after) = sustained[0], sustained[-1]
        rates["sustained_tokens_per_second"] = round((after - before) / (end - begin))
    return {
        "tokens": summary.tokens,
        "seconds": round(seconds, 2),
        **rates,
        "mb_per_second": round(summary.written_bytes / seconds / 1e6, 1),
        "stages": summary.stages,
        "bottleneck": summary.bottleneck,
    }


def _disk_rate(folder: Path) -> float:
    """Return the MB per second of fsynced writes of blocks of 16 MiB."""
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
