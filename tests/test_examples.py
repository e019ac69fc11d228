"""The examples run unmodified."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def run(name: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_task_model_learns_its_sentences(tmp_path: Path) -> None:
    out = run("task_model.py", tmp_path)
    assert "accuracy on the training sentences: 1.00" in out
    assert "mix at the output: gamma" in out


@pytest.mark.slow
def test_summary_excludes_irrelevant_sentences(tmp_path: Path) -> None:
    found = run("summarize.py", tmp_path).splitlines()
    assert len(found) == 3
    assert found[-1].startswith("Since 1988 nobody has lived in the lighthouse")
    assert not any("cake" in sentence for sentence in found)


@pytest.mark.slow
def test_elmo_improves_translation_of_words_without_training_examples(tmp_path: Path) -> None:
    out = run("translate.py", tmp_path, "300")
    right = [int(share) for share in re.findall(r"(\d+)% of 200 sentences correct", out)]
    plain_known, plain_new, elmo_known, elmo_new = right
    assert min(plain_known, elmo_known) > 90
    assert elmo_new > plain_new + 20


def test_demo_shows_context_and_writes_its_file(tmp_path: Path) -> None:
    if not Path(sys.executable).with_name("elmo").exists():
        pytest.skip("the elmo command is not installed beside this python")
    out = run("demo.py", tmp_path)
    assert "bank" in out
    assert "layer 2" in out
    assert (tmp_path / "out" / "vectors.h5").stat().st_size > 0
