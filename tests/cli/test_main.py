"""Errors and interruptions as the user of the command sees them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = "from elmokit.cli.main import run; run()"


def elmo(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )


def test_wrong_usage_is_2_and_a_bad_model_is_1() -> None:
    assert elmo("embed").returncode == 2
    assert elmo("nonsense").returncode == 2
    done = elmo("info", "no-such-model")
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_a_mistyped_file_is_found_before_a_model_is_fetched(tmp_path: Path) -> None:
    done = elmo("embed", str(tmp_path / "no.txt"), "-o", str(tmp_path / "o.npz"), "--model", "nope")
    assert done.returncode == 1
    assert "no.txt does not exist" in done.stderr
    done = elmo("embed", str(tmp_path), "-o", str(tmp_path / "o.npz"))
    assert "is a directory" in done.stderr


@pytest.mark.parametrize("device", ["mps", "meta", "nonsense", "cuda:99"])
def test_a_device_that_cannot_be_used_is_said(tmp_path: Path, device: str) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    done = elmo("embed", str(tmp_path / "a.txt"), "-o", str(tmp_path / "o.npz"), "--device", device)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_a_scale_without_a_mix_is_wrong_usage(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    arguments = ["embed", str(tmp_path / "a.txt"), "-o", str(tmp_path / "o.npz"), "--gamma", "3"]
    assert elmo(*arguments).returncode == 2


def test_standard_output_that_cannot_be_written_is_an_error_without_a_traceback() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    with full.open("w") as out:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "info"], stdout=out, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", [0.5, 0.8, 1.2])
def test_an_early_interruption_is_130_and_said(number: signal.Signals, after: float) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "doctor"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    time.sleep(after)  # into the imports, most likely
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors.decode()
    assert errors.decode().strip() == "interrupted"
