from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from elmokit.train.config import run_preset
from elmokit.train.memory import OutOfMemoryError, _told, bytes_per_row, told_of_memory

SPEEDS = Path(__file__).resolve().parents[2] / "results" / "train-speed.json"


@pytest.mark.parametrize(("preset", "run"), [("original", 0), ("medium", 2)])
def test_the_estimate_is_near_what_an_h200_needed(preset: str, run: int) -> None:
    speeds = json.loads(SPEEDS.read_text())["runs"][run]["speeds"]
    least, most = speeds[-2], speeds[-1]
    slope = (most["memory_gib"] - least["memory_gib"]) * 2**30 / (most["rows"] - least["rows"])
    assert bytes_per_row(run_preset(preset)) == pytest.approx(slope, rel=0.1)


def test_the_message_names_a_batch_that_fits() -> None:
    config = run_preset("original")
    told = _told(config, 8 * 2**30, 7 * 2**30, "CUDA out of memory.")
    assert "1024 rows x 20 steps" in told
    rows = int(told.split("step.rows=")[1].split(".")[0])
    assert 100 < rows < 1024
    assert "smaller preset" in _told(config, 2**30, 2**30, "CUDA out of memory.")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("out of memory"),
        MemoryError("Unable to allocate 9.54 GiB for an array"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_running_out_of_memory_is_our_error(error: Exception) -> None:
    with (
        pytest.raises(OutOfMemoryError, match="32 rows"),
        told_of_memory(run_preset("toy"), torch.device("cpu")),
    ):
        raise error


def test_other_errors_are_left_alone() -> None:
    with (
        pytest.raises(RuntimeError, match="size mismatch"),
        told_of_memory(run_preset("toy"), torch.device("cpu")),
    ):
        raise RuntimeError("size mismatch")
