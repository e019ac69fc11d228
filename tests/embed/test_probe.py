from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elmokit.embed import probe
from elmokit.embed.probe import KINDS, probe_cpu


def test_float32_is_always_safe() -> None:
    found = probe_cpu("float32")
    assert found.works
    assert "relative error" in found.note


def test_crash_in_a_child_process_is_reported_and_does_not_affect_the_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(probe, "_PROGRAM", "import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    found = probe_cpu("bfloat16")
    assert not found.works
    assert "signal 4" in found.note


def test_incorrect_results_are_not_reported_as_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "_PROGRAM", "print(0.7)")
    assert not probe_cpu("int8").works


@pytest.mark.slow
def test_doctor_reports_every_precision_without_crashing(tmp_path: Path) -> None:
    program = "from elmokit.cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ELMOKIT_HOME": str(tmp_path)},
    )
    report = json.loads(done.stdout)
    assert set(report["cpu_precisions"]) == set(KINDS)
    assert report["cpu_precisions"]["float32"]["works"]
    assert report["fast"]["kind"] in ("native", "int8", "exact")
    assert report["fast"]["seconds"]["exact"] > 0
    assert report["packages"]["torch"]
    assert "parameters" in report["bundled_model"]
