from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

import elmokit


@pytest.mark.slow
def test_doctor_reports_versions_and_the_kernel_for_fast(tmp_path: Path) -> None:
    program = "from elmokit.cli.main import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", program, "doctor", "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "ELMOKIT_HOME": str(tmp_path)},
    )
    report = json.loads(done.stdout)
    assert report["fast"]["kind"] in ("native", "int8", "exact")
    assert report["fast"]["seconds"]["exact"] > 0
    assert report["packages"]["torch"]
    assert "parameters" in report["bundled_model"]


@pytest.mark.slow
def test_doctor_works_if_elmokit_is_only_on_the_path(tmp_path: Path) -> None:
    source = Path(elmokit.__file__).parents[1]
    for entry in Path(numpy.__file__).parents[1].iterdir():  # site-packages
        if "elmokit" not in entry.name and entry.resolve() != source:
            (tmp_path / entry.name).symlink_to(entry)
    done = subprocess.run(
        [sys.executable, "-S", "-m", "elmokit", "doctor", "--no-probe", "--json"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{tmp_path}"},
    )
    assert json.loads(done.stdout)["elmokit"] == "unknown"
