"""The metrics of a run: `metrics.jsonl`, one object per line, and optionally TensorBoard."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elmokit.errors import DataError, optional_imports, output_error
from elmokit.storage.atomic import replace_file
from elmokit.storage.regular import check_regular_files
from elmokit.train.config import RunConfig

FILE = "metrics.jsonl"


def check_tensorboard() -> None:
    """Raise if TensorBoard is not installed."""
    with optional_imports("log", "Logging to TensorBoard"):
        import tensorboard  # noqa: F401


class Metrics:
    """Writes the metrics of a run.

    Args:
        run: The run directory.
        done: Number of finished steps; lines of later steps, which an interrupted run has written,
            are removed, so that every step is in the file once.
        tensorboard: Also write event files.
    """

    def __init__(self, run: Path, done: int, *, tensorboard: bool = False) -> None:
        self._path = run / FILE
        self._remove_later(done)
        self._file = self._path.open("a", encoding="utf-8")
        self._board: Any = None
        if tensorboard:
            check_tensorboard()
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(run / "tensorboard"), purge_step=done)

    def write(self, values: dict[str, Any]) -> None:
        """Add one object; it has a `step` and `tokens`."""
        self._file.write(json.dumps(values) + "\n")
        self._file.flush()
        if self._board is not None:
            for name, value in values.items():
                if isinstance(value, int | float) and name != "step":
                    self._board.add_scalar(name, value, values["step"])

    def close(self) -> None:
        """Close the files."""
        self._file.close()
        if self._board is not None:
            self._board.close()

    def _remove_later(self, done: int) -> None:
        # A new run keeps no lines, and a broken link is replaced.
        records = _records(self._path) if self._path.exists() else ()
        kept = [line for line, values in records if 0 < done >= values["step"]]
        with replace_file(self._path) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in kept), "utf-8")


def evaluations(run: Path) -> dict[int, dict[str, Any]]:
    """Return the evaluations of a run by step, including those before an interruption."""
    measured = {}
    for _, values in _records(run / FILE):
        valid = {k.removeprefix("valid_"): v for k, v in values.items() if k.startswith("valid_")}
        if valid:
            measured[int(values["step"])] = valid
    return measured


class Clock:
    """Throughput and remaining time."""

    def __init__(self, config: RunConfig, step: int) -> None:
        self._config = config
        self._first, self._begin = step, time.perf_counter()
        self._last, self._then = step, self._begin

    def rate(self, step: int) -> float:
        """Return the tokens per second since the last call."""
        now = time.perf_counter()
        done = (step - self._last) * self._config.tokens_per_step
        rate = done / max(1e-9, now - self._then)
        self._last, self._then = step, now
        return rate

    def format_line(self, values: dict[str, Any]) -> str:
        """Format a line of metrics for the log."""
        step = values["step"]
        elapsed = time.perf_counter() - self._begin
        left = elapsed / max(1, step - self._first) * (self._config.max_steps - step)
        losses = values["sampled_loss_forward"], values["sampled_loss_backward"]
        return (
            f"step {step:,}/{self._config.max_steps:,}  sampled loss "
            f"{losses[0]:.3f} / {losses[1]:.3f}  {values['tokens_per_second']:,} tokens/s  "
            f"{left / 60:.1f} min left"
        )


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the lines of the file with their values, without a last one that a kill truncated."""
    check_regular_files(path, DataError)
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError as error:
        raise output_error(path, error) from error
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            int(values["step"])
        except (ValueError, TypeError, KeyError):
            if number < len(lines):
                raise DataError(
                    f"{path}:{number} is not a JSON object with a step. Remove that line."
                ) from None
            continue
        yield line, values
