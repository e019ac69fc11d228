"""The examples run as they stand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_task_model_learns_its_sentences(tmp_path: Path) -> None:
    out = run("task_model.py", tmp_path)
    assert "accuracy on its own training sentences: 1.00" in out
    assert "mix at the output: gamma" in out


def test_the_demo_shows_context_and_writes_its_file(tmp_path: Path) -> None:
    if not Path(sys.executable).with_name("elmo").exists():
        pytest.skip("the elmo command is not installed beside this python")
    out = run("demo.py", tmp_path)
    assert "bank" in out
    assert "layer 2" in out
    assert (tmp_path / "out" / "vectors.h5").stat().st_size > 0
