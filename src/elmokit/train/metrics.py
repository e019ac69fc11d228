"""Write and read the metrics of a run: `metrics.jsonl`, and optionally TensorBoard event files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from elmokit.errors import DataError, optional_imports
from elmokit.storage.atomic import replace_file
from elmokit.storage.regular import check_regular_files
from elmokit.train.config import RunConfig

FILE = "metrics.jsonl"


def check_tensorboard() -> None:
    """Raise an error if TensorBoard is not installed."""
    with optional_imports("log", "Logging to TensorBoard"):
        import tensorboard  # noqa: F401


class Metrics:
    """Writes the metrics of a run.

    Args:
        run: The run directory.
        n_steps: Number of completed steps. Metrics of later steps are removed from the file. They
            exist if the run was killed after its last checkpoint.
        tensorboard: Also write TensorBoard event files.
    """

    def __init__(self, run: Path, n_steps: int, *, tensorboard: bool = False) -> None:
        self._path = run / FILE
        self._remove_later_steps(n_steps)
        self._file = self._path.open("a", encoding="utf-8")
        self._tensorboard: Any = None
        if tensorboard:
            check_tensorboard()
            from torch.utils.tensorboard import SummaryWriter

            self._tensorboard = SummaryWriter(str(run / "tensorboard"), purge_step=n_steps)

    def write(self, values: dict[str, Any]) -> None:
        """Append a line of metrics. `values` must include the `step`."""
        self._file.write(json.dumps(values) + "\n")
        self._file.flush()
        if self._tensorboard is not None:
            for name, value in values.items():
                if isinstance(value, int | float) and name != "step":
                    self._tensorboard.add_scalar(name, value, values["step"])

    def close(self) -> None:
        self._file.close()
        if self._tensorboard is not None:
            self._tensorboard.close()

    def _remove_later_steps(self, n_steps: int) -> None:
        # A new run starts with an empty file, even if the directory contains metrics.
        records = _read_records(self._path) if n_steps and self._path.exists() else ()
        lines = [line for line, values in records if values["step"] <= n_steps]
        with replace_file(self._path) as temporary:
            temporary.write_text("".join(f"{line}\n" for line in lines), "utf-8")


def read_evaluations(run: Path) -> dict[int, dict[str, Any]]:
    """Return the held-out metrics of a run, by step."""
    evaluations = {}
    for _, values in _read_records(run / FILE):
        valid = {k.removeprefix("valid_"): v for k, v in values.items() if k.startswith("valid_")}
        if valid:
            evaluations[int(values["step"])] = valid
    return evaluations


class Clock:
    """Measures the throughput of a run and estimates the remaining time."""

    def __init__(self, config: RunConfig, step: int) -> None:
        self._config = config
        self._first_step, self._start_time = step, time.perf_counter()
        self._last_step, self._last_time = step, self._start_time

    def tokens_per_second(self, step: int) -> float:
        """Return the throughput since the last call."""
        now = time.perf_counter()
        n_tokens = (step - self._last_step) * self._config.tokens_per_step
        throughput = n_tokens / max(1e-9, now - self._last_time)
        self._last_step, self._last_time = step, now
        return throughput

    def format_line(self, values: dict[str, Any]) -> str:
        """Format metrics as a line for the log."""
        step = values["step"]
        elapsed = time.perf_counter() - self._start_time
        remaining = elapsed / max(1, step - self._first_step) * (self._config.max_steps - step)
        losses = values["sampled_loss_forward"], values["sampled_loss_backward"]
        return (
            f"step {step:,}/{self._config.max_steps:,}  sampled loss "
            f"{losses[0]:.3f} / {losses[1]:.3f}  {values['tokens_per_second']:,} tokens/s  "
            f"{remaining / 60:.1f} min left"
        )


def _read_records(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each line of the file with its values. A truncated last line is omitted."""
    check_regular_files(path, DataError)
    try:
        lines = path.read_text("utf-8", "replace").splitlines()
    except OSError as error:
        raise DataError(
            f"Cannot read {path}: {error.strerror}. Check the file and its permissions."
        ) from error
    for number, line in enumerate(lines, 1):
        try:
            values = json.loads(line)
            int(values["step"])
        except (ValueError, TypeError, KeyError):
            if number < len(lines):
                raise DataError(
                    f"{path}:{number}: expected a JSON object with 'step'. Remove the line."
                ) from None
            continue
        yield line, values
