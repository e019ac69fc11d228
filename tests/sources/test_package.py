"""Models as packages: building, installing with pip, loading by name."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import elmokit
from elmokit.cli.main import app
from elmokit.errors import ConfigError, WeightsError
from elmokit.sources.package import build_package
from tests.conftest import TINY_MODEL

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import sys, elmokit, elmokit_tiny_test
elmo = elmokit.load("tiny-test")
assert elmo.source == "tiny-test"
assert elmokit_tiny_test.load(device="cpu").source == "tiny-test"
elmo.embed("I read it.").layers.tofile(sys.argv[1])
"""


def test_package_is_installed_and_loaded_by_name(tmp_path: Path) -> None:
    options = ["-o", str(tmp_path), "--name", "tiny-test", "--version", "2.1"]
    built = CliRunner().invoke(app, ["package", str(TINY_MODEL), *options])
    assert built.exit_code == 0, built.output
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == "elmokit_tiny_test-2.1-py3-none-any.whl"
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index"]
    subprocess.run([*install, "--target", site, wheel], check=True)

    run = {"check": True, "capture_output": True, "text": True, "cwd": tmp_path}
    run["env"] = {"PYTHONPATH": f"{site}:{ROOT / 'src'}", "PATH": ""}
    subprocess.run([sys.executable, "-c", PROGRAM, "layers.bin"], **run)  # type: ignore[call-overload]
    expected = elmokit.load(TINY_MODEL, device="cpu").embed("I read it.").layers
    found = np.fromfile(tmp_path / "layers.bin", dtype=np.float32).reshape(expected.shape)
    np.testing.assert_array_equal(found, expected)

    info = [sys.executable, "-m", "elmokit", "info", "--installed", "--json"]
    listed = json.loads(subprocess.run(info, **run).stdout)  # type: ignore[call-overload]
    packages = {row["name"]: row["package"] for row in listed}
    assert packages["tiny-test"] == "elmokit-tiny-test 2.1"
    assert packages["english"] == "elmokit"


def test_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = (
        build_package(TINY_MODEL, tmp_path / part, name="tiny", version="1.0") for part in "ab"
    )
    assert first.read_bytes() == second.read_bytes()
    assert zipfile.ZipFile(first).testzip() is None


@pytest.mark.parametrize(
    ("name", "version", "message"),
    [
        ("My Model", "1.0", "Invalid model name 'My Model'"),
        ("../x", "1.0", "Invalid model name"),
        ("x", "1.0/..", "Invalid version"),
        ("x", "new", "Invalid version"),
    ],
)
def test_names_and_versions_are_validated(
    name: str, version: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        build_package(TINY_MODEL, tmp_path, name=name, version=version)
    assert not list(tmp_path.iterdir())


def test_only_model_directories_can_be_packaged(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="elmo convert"):
        build_package(tmp_path, tmp_path / "out", name="x", version="1.0")


def test_missing_model_package_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("elmokit.sources.resolve._WEIGHTS", tmp_path)
    with pytest.raises(WeightsError, match="package, elmokit-english-original"):
        elmokit.load("english-original")


@pytest.mark.slow
def test_english_original_in_a_fresh_environment(tmp_path: Path) -> None:
    weights = ROOT / "weights" / "english-original"
    wheel = build_package(weights, tmp_path, name=weights.name, version="1.0.0")
    assert wheel.stat().st_size < 100e6
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q", "-c", ROOT / "constraints.txt"]
    own = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path / "own", ROOT]
    subprocess.run(own, check=True)
    subprocess.run([*install, *(tmp_path / "own").glob("*.whl"), wheel], check=True)
    program = (
        "import elmokit; print(elmokit.load('english-original').embed('I read it.').top.shape)"
    )
    done = subprocess.run(
        [python, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "(4, 1024)"
