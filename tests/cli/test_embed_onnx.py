"""`elmo embed` with an ONNX model: works without torch, and errors say what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import elmokit
from elmokit.embed.model import ElmoModel
from elmokit.embed.onnx_export import export
from elmokit.sources.modeldir import ModelParts
from tests.conftest import random_bilm
from tests.convert.test_onnx import LARGE
from tests.sources.models import make_parts

Elmo = Callable[..., tuple[int, str]]
ROOT = Path(__file__).resolve().parents[2]
TEXT = "I read the book yesterday.\n\nDon't! It's mine.\n"
RUN = "from elmokit.cli.main import run\nrun()"
# A module that shadows an installed package and cannot be imported.
ABSENT = "raise ModuleNotFoundError(\"No module named '{0}'\", name='{0}')\n"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models")
    export(make_parts(full=True), path / "onnx")
    export(ModelParts(random_bilm(LARGE, scale=1.0)), path / "int8", storage="int8")
    return path


@pytest.fixture
def elmo(tmp_path: Path, models: Path) -> Elmo:
    """Run `elmo embed` in a child process in which (and in whose workers) packages are missing."""
    (tmp_path / "text.txt").write_text(TEXT)

    def command(
        *arguments: str, model: str = "onnx", absent: tuple[str, ...] = ("torch",)
    ) -> tuple[int, str]:
        for name in absent:
            (folder := tmp_path / "absent" / name).mkdir(parents=True, exist_ok=True)
            (folder / "__init__.py").write_text(ABSENT.format(name))
        paths = os.pathsep.join([str(tmp_path / "absent"), str(ROOT / "src")])
        options = ["embed", "text.txt", *arguments, "--model", str(models / model)]
        done = subprocess.run(
            [sys.executable, "-c", RUN, *options],
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    return command


@pytest.mark.parametrize("output", ["v.h5", "v.npz", "v.safetensors", "v.parquet", "folder"])
def test_embedding_without_torch(elmo: Elmo, tmp_path: Path, output: str) -> None:
    code, errors = elmo("-o", output)
    assert code == 0, errors
    assert "3 sentences, 13 tokens" in errors
    expected = ElmoModel(make_parts(full=True), device="cpu").embed(TEXT.split("\n")[:3])
    with elmokit.open_vectors(tmp_path / output) as stored:
        for found, wanted in zip(stored, expected, strict=True):
            assert found.tokens == wanted.tokens
            np.testing.assert_allclose(found.vectors, wanted.layers, atol=1e-5)


def test_embedding_with_int8_without_torch(elmo: Elmo, tmp_path: Path) -> None:
    code, errors = elmo("-o", "v.npz", "--precision", "fast", model="int8")
    assert code == 0, errors
    exact = ElmoModel(ModelParts(random_bilm(LARGE, scale=1.0)), device="cpu")
    with elmokit.open_vectors(tmp_path / "v.npz") as stored:
        for found, item in zip(stored, exact.embed(TEXT.split("\n")[:3]), strict=True):
            x, y = found.vectors, item.layers
            lengths = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
            assert ((x * y).sum(-1) > 0.999 * lengths).all()


def test_workers_and_resumed_runs_without_torch(elmo: Elmo, tmp_path: Path) -> None:
    options = ("--chunk-bytes", "10", "--state", "warm")
    assert elmo("-o", "one.npz", *options)[0] == 0
    code, errors = elmo("-o", "two.npz", *options, "--workers", "2")
    assert code == 0, errors
    assert (tmp_path / "one.npz").read_bytes() == (tmp_path / "two.npz").read_bytes()
    code, errors = elmo("-o", "two.npz", *options, "--resume")
    assert code == 0, errors
    assert "3 sentences from an earlier run" in errors
    code, errors = elmo("-o", "shards", "--workers", "2", "--chunk-bytes", "20")
    assert code == 0, errors


def test_torch_is_not_imported_if_it_is_installed(tmp_path: Path, models: Path) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    for output in ("v.npz", "folder"):
        options = ["elmo", "embed", "text.txt", "-o", output, "--model", str(models / "onnx")]
        program = (
            f"import sys; sys.argv = {options!r}\n"
            f"from elmokit.cli.main import run\n"
            "try: run()\n"
            "finally: print('onnxruntime' in sys.modules, 'torch' in sys.modules)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == ["True", "False"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-o", "v.npz", "--device", "cuda"], "expected 'cpu' or 'auto'"),
        (["-o", "v.npz", "--precision", "fast"], "--to onnx --storage int8"),
        (["-o", "v.npz", "--weights", "w.hdf5"], "already contains its weights"),
        (["-o", "folder", "--state", "carry"], "requires a single output file"),
        (["-o", "v.npz", "--state", "carry", "--workers", "2"], "omit --workers"),
    ],
)
def test_unsupported_options_are_reported(elmo: Elmo, options: list[str], message: str) -> None:
    code, errors = elmo(*options)
    assert code == 1
    assert errors.startswith("Error: ")
    assert message in errors


def test_state_can_be_carried(elmo: Elmo, tmp_path: Path) -> None:
    code, errors = elmo("-o", "v.npz", "--state", "carry", "--chunk-bytes", "10")
    assert code == 0, errors
    torch_model = ElmoModel(make_parts(full=True), device="cpu")
    expected = torch_model.embed(TEXT.split("\n")[:3], "carry")
    with elmokit.open_vectors(tmp_path / "v.npz") as stored:
        for found, wanted in zip(stored, expected, strict=True):
            np.testing.assert_allclose(found.vectors, wanted.layers, atol=1e-5)


@pytest.mark.parametrize("workers", [(), ("--workers", "2")])
def test_other_models_require_torch(elmo: Elmo, workers: tuple[str, ...]) -> None:
    code, errors = elmo("-o", "v.npz", *workers, model="nothing of the kind")
    assert code == 1
    assert "elmo convert MODEL OUT --to onnx" in errors
    assert "pip install torch" in errors


@pytest.mark.parametrize(
    ("output", "lacks"),
    [
        ("v.h5", "h5py"),
        ("v.npz", "safetensors"),
        ("v.safetensors", "safetensors"),
        ("folder", "pyarrow"),
    ],
)
def test_other_missing_packages_are_named(elmo: Elmo, output: str, lacks: str) -> None:
    code, errors = elmo("-o", output, absent=("torch", lacks))
    assert code == 1
    wanted = "'elmokit[arrow]'" if lacks == "pyarrow" else lacks
    assert f"pip install {wanted}" in errors
