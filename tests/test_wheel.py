"""The wheel works in an empty environment: it is complete and downloads nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PROGRAM = """
import elmokit
elmo = elmokit.load()
first, second = elmo.embed(["I read the book yesterday.", "Can you read the letter now?"])
assert first.word("read").shape == (3, 512)
assert (first.word("read")[0] == second.word("read")[0]).all()
assert abs(first.word("read")[2] - second.word("read")[2]).max() > 0.1
print(elmo.score("The cat sat on the mat .").perplexity < 60)
"""


@pytest.mark.slow
def test_wheel_embeds_offline_in_an_empty_environment(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, ROOT], check=True
    )
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "elmokit/models/english/model.safetensors" in names
    assert "elmokit/models/english/README.md" in names
    assert "elmokit/model/kernels/int8_lstm.c" in names
    assert "elmokit/serve/static/index.html" in names
    assert not any(name.startswith(("tests/", "weights/")) for name in names)
    assert wheel.stat().st_size < 80e6
    python = tmp_path / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    install = [python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt", wheel]
    subprocess.run(install, check=True)
    # Without a network if possible, and in an empty directory.
    offline = ["unshare", "-rn"] if shutil.which("unshare") else []
    if offline and subprocess.run([*offline, "true"], check=False).returncode:
        offline = []
    empty = tmp_path / "empty"
    empty.mkdir()
    for command in ([python, "-c", PROGRAM], [python.with_name("elmo"), "info"]):
        done = subprocess.run(
            [*offline, *command], cwd=empty, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert "english" in done.stdout
