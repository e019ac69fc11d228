from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from elmokit.cli import doctor


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


def test_doctor_works_if_elmokit_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_version", lambda _: None)
    assert doctor._installed_versions() == {None: {}}
