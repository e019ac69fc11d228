"""Models in ONNX give the same vectors as the torch model, without torch."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import elmokit
from elmokit.cli.main import app
from elmokit.embed.model import ElmoModel
from elmokit.embed.onnx_export import export
from elmokit.embed.onnx_model import OnnxModel
from elmokit.errors import (
    ConfigError,
    DependencyError,
    ElmoError,
    ElmoWarning,
    OutputError,
    WeightsError,
)
from elmokit.sources import onnxdir
from elmokit.sources.modeldir import save
from elmokit.sources.resolve import load_parts
from tests.conftest import TINY_MODEL
from tests.embed.test_english import DIMENSIONS, GOLDEN
from tests.sources.models import make_parts

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")

TOLERANCE = 1e-5
ROOT = Path(__file__).resolve().parents[2]
SENTENCES = [
    "I read the book yesterday.",
    "",
    ["Can", "you", "read", "?"],
    "Go!",
    ["x"],
    "The sun also ariseth, and the sun goeth down.",
]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export a model with a warm state to ONNX."""
    path = tmp_path_factory.mktemp("full") / "onnx"
    export(make_parts(full=True), path)
    return path


@pytest.fixture(scope="module")
def exact() -> ElmoModel:
    return ElmoModel(make_parts(full=True), device="cpu")


@pytest.fixture(scope="module")
def english(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export the bundled model to ONNX."""
    path = tmp_path_factory.mktemp("english") / "onnx"
    export(load_parts(), path)
    return path


@pytest.mark.parametrize(
    ("state", "rows"), [("reset", 1), ("warm", 1), ("carry", 1), ("carry", 2), ("carry", 4)]
)
def test_vectors_equal_those_of_torch(full: Path, exact: ElmoModel, state: Any, rows: int) -> None:
    model = elmokit.load(full, backend="onnx")
    assert isinstance(model, OnnxModel)
    streamed = list(model.stream(SENTENCES, state, rows=rows))
    embedded = model.embed(SENTENCES, state, rows=rows)
    there = exact.embed(SENTENCES, state, rows=rows)
    for here, stream, wanted in zip(embedded, streamed, there, strict=True):
        assert (here.tokens, here.offsets) == (wanted.tokens, wanted.offsets)
        np.testing.assert_allclose(here.layers, wanted.layers, atol=TOLERANCE)
        np.testing.assert_allclose(here.mix(w=[1, 0, 2]), wanted.mix(w=[1, 0, 2]), atol=TOLERANCE)
        np.testing.assert_array_equal(stream.layers, here.layers)


@pytest.mark.parametrize("kind", ["words", "no projection", "no clips, no skip, tanh"])
def test_vectors_of_other_shapes_equal_those_of_torch(kind: str, tmp_path: Path) -> None:
    export(make_parts(kind), tmp_path / "onnx")
    here = elmokit.load(tmp_path / "onnx").embed(SENTENCES)
    there = ElmoModel(make_parts(kind), device="cpu").embed(SENTENCES)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_allclose(one.layers, other.layers, atol=TOLERANCE)


def test_lexicon_is_exported(tmp_path: Path) -> None:
    from tests.model.test_lexicon import CONFIG, encoder

    torch_model = make_parts()
    torch_model.bilm = type(torch_model.bilm)(CONFIG).eval()
    torch_model.bilm.encoder = encoder()
    export(torch_model, tmp_path / "onnx")
    sentences = [["ab", "cab"], ["zz", "abcabcabcabcabc"[:9]]]
    here = elmokit.load(tmp_path / "onnx").embed(sentences)
    there = ElmoModel(torch_model, device="cpu").embed(sentences)
    for one, other in zip(here, there, strict=True):
        np.testing.assert_allclose(one.layers, other.layers, atol=TOLERANCE)


def test_vectors_of_the_bundled_model_equal_those_of_torch(english: Path) -> None:
    model = elmokit.load(english)
    for golden, found in zip(GOLDEN, model.embed([g["tokens"] for g in GOLDEN]), strict=True):
        half = found.layers.shape[2] // 2
        first = [found.layers[..., :DIMENSIONS], found.layers[..., half : half + DIMENSIONS]]
        np.testing.assert_allclose(np.concatenate(first, -1), golden["first"], atol=TOLERANCE)


def test_vectors_do_not_depend_on_the_order_or_the_batch(full: Path) -> None:
    model = elmokit.load(full)
    alone = [model.embed([sentence])[0].layers for sentence in SENTENCES]
    model.batch_sentences = 2
    for one, other in zip(alone, reversed(model.embed(SENTENCES[::-1])), strict=True):
        np.testing.assert_allclose(one, other.layers, atol=2e-6)


def test_repeated_tokens_are_encoded_once(full: Path) -> None:
    model = elmokit.load(full)
    model.embed([["the", "book", "the"]])
    assert (model.cache.misses, len(model.cache)) == (4, 4)  # and the two boundaries
    model.embed([["book"]])
    assert (model.cache.misses, model.cache.hits) == (4, 3)


def test_truncated_tokens_are_reported(full: Path) -> None:
    with pytest.warns(ElmoWarning, match="Truncated 1 token to 48 bytes"):
        elmokit.load(full).embed([["x" * 60]])


def test_int8_accuracy_loss_is_recorded_in_the_directory(tmp_path: Path) -> None:
    errors = export(load_parts(TINY_MODEL), tmp_path / "onnx", storage="int8")
    model = elmokit.load(tmp_path / "onnx", precision="fast")
    assert model.precision == "fast"
    assert model.metadata["onnx"] == {"storage": "int8", "error": errors}
    assert len(errors["mean_cosine"]) == len(errors["worst_cosine"]) == model.config.n_layers
    card = (tmp_path / "onnx" / "README.md").read_text("utf-8")
    assert f"at most {max(errors['largest_difference']):.1e}" in card


# ------------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("how", "error", "said"),
    [
        ({"backend": "onx"}, ConfigError, "Invalid backend 'onx'. Did you mean 'onnx'"),
        ({"device": "cuda"}, ConfigError, "Invalid device 'cuda'"),
        ({"precision": "fast"}, ConfigError, "Invalid precision 'fast'"),
        ({"weights": "w.hdf5"}, WeightsError, "already contains its weights"),
        ({"backend": "torch"}, WeightsError, "is an ONNX model"),
    ],
)
def test_unsupported_operations_are_errors(
    full: Path, how: dict[str, Any], error: type[ElmoError], said: str
) -> None:
    with pytest.raises(error, match=said):
        elmokit.load(full, **how)


def test_other_directories_are_not_recognized_as_onnx() -> None:
    with pytest.raises(WeightsError, match=r"elmo convert .*tiny OUT --to onnx"):
        elmokit.load(TINY_MODEL, backend="onnx")
    with pytest.raises(WeightsError, match="elmo convert english OUT --to onnx"):
        elmokit.load(backend="onnx")  # type: ignore[call-overload]


def test_scoring_requires_a_head(full: Path, tmp_path: Path) -> None:
    for what in ("score", "substitutes"):
        with pytest.raises(ConfigError):
            getattr(elmokit.load(full), what)("I [read] it .")
    export(make_parts(), tmp_path / "cold")
    with pytest.raises(ConfigError):
        elmokit.load(tmp_path / "cold").embed("Go!", state="warm")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("bilm.onnx", b"nonsense", "cannot be read by onnxruntime"),
        ("encoder.onnx", None, "does not match config.json: the sizes of its inputs are"),
        ("warm.npz", b"PK nonsense", "cannot be read as the warm state"),
        ("config.json", b"{}", "'format' should be 'elmokit-onnx'"),
    ],
)
def test_damaged_files_are_rejected(
    name: str, content: bytes | None, said: str, full: Path, tmp_path: Path
) -> None:
    for file in full.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / name).write_bytes(content or (full / "bilm.onnx").read_bytes())
    with pytest.raises(ElmoError, match=said):
        elmokit.load(tmp_path)


@pytest.mark.parametrize("graph", ["encoder", "bilm"])
def test_graph_that_fails_is_an_error(full: Path, tmp_path: Path, graph: str) -> None:
    onnx = pytest.importorskip("onnx")
    folder = tmp_path / "onnx"
    shutil.copytree(full, folder)
    model = onnx.load(folder / f"{graph}.onnx")
    size = onnx.helper.make_tensor("size", onnx.TensorProto.INT64, [1], [10**15])
    huge = onnx.helper.make_node("ConstantOfShape", ["size"], ["huge"])
    model.graph.initializer.append(size)
    model.graph.node.append(huge)
    model.graph.output.append(onnx.helper.make_tensor_value_info("huge", 1, None))
    onnx.save(model, folder / f"{graph}.onnx")
    # onnxruntime 1.19 already computes constants when it reads the graph.
    with pytest.raises(WeightsError, match=r"cannot be (read|run) by onnxruntime"):
        elmokit.load(folder).embed(["I read it ."])


def test_graphs_with_other_sizes_are_rejected(full: Path, tmp_path: Path) -> None:
    export(make_parts("no clips, no skip, tanh"), tmp_path / "onnx")
    (tmp_path / "onnx" / "bilm.onnx").write_bytes((full / "bilm.onnx").read_bytes())
    with pytest.raises(WeightsError):
        elmokit.load(tmp_path / "onnx")


def test_only_onnx_models_are_overwritten(full: Path, tmp_path: Path) -> None:
    save(make_parts(), tmp_path / "ours")
    with pytest.raises(OutputError):
        export(make_parts(), tmp_path / "ours", overwrite=True)
    with pytest.raises(OutputError):
        export(make_parts(), full)
    assert onnxdir.is_onnx_dir(full)


# ---------------------------------------------------------------------------------------- commands


def test_commands_support_onnx_models(tmp_path: Path) -> None:
    save(make_parts(full=True), tmp_path / "ours")
    run = CliRunner().invoke
    out = tmp_path / "onnx"
    done = run(app, ["convert", str(tmp_path / "ours"), str(out), "--to", "onnx", "--json"])
    summary = json.loads(done.stdout)
    assert summary["written"] == {file.name: file.stat().st_size for file in out.iterdir()}
    assert summary["omitted"] == ["the LM head"]
    assert max(summary["error"]["largest_difference"]) < TOLERANCE
    done = run(app, ["convert", str(tmp_path / "ours"), str(tmp_path / "again"), "--to", "onnx"])
    assert done.exit_code == 0, done.output
    assert "layer  largest difference  mean cosine" in done.stdout
    done = run(app, ["info", str(out), "--json"])
    info = json.loads(done.stdout)
    assert (info["storage"], info["head"], info["warm"]) == ("float32", False, True)
    assert info["metadata"]["name"] == "test"
    assert info["card"].startswith("# A card\r\n\nof two lines")
    done = run(app, ["info", str(out)])
    assert "(ONNX, float32)" in done.stdout
    done = run(
        app, ["convert", str(tmp_path / "ours"), str(out), "--to", "onnx", "--part-size", "1"]
    )
    assert done.exit_code == 2
    done = run(app, ["convert", str(out), str(tmp_path / "back")])
    assert isinstance(done.exception, WeightsError)


# ----------------------------------------------------------------------------------- without torch

FORBID = """
import sys

class Forbid:
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top in ("torch", "safetensors", "h5py", "onnx"):
            raise ModuleNotFoundError(f"No module named '{top}'", name=top)

sys.meta_path.insert(0, Forbid())
"""
PROGRAM = """
import importlib.util
import json
import sys

import numpy as np

import elmokit

folder, golden = sys.argv[1:]
elmo = elmokit.load(folder)
for case in json.load(open(golden)):
    layers = elmo.embed([case["tokens"]])[0].layers
    half, n = layers.shape[2] // 2, len(case["first"][0][0]) // 2
    found = np.concatenate([layers[..., :n], layers[..., half : half + n]], -1)
    np.testing.assert_allclose(found, case["first"], atol=1e-5)
assert [t.text for t in elmokit.tokenize("Go on!")] == ["Go", "on", "!"]
assert len(elmokit.split_sentences("Go on. He went.")) == 2
assert elmokit.batch_ids([["a"]]).shape == (1, 1, 50)
assert len(elmo.embed("Go on!", state="warm")) == 3
for needy in (lambda: elmokit.BiLM, elmokit.load):
    try:
        needy()
        raise SystemExit("torch is here")
    except elmokit.ElmoError as error:
        assert "pip install torch" in str(error), error
assert not {"torch", "safetensors", "h5py"} & set(sys.modules)
"""


def golden_file() -> Path:
    return Path(__file__).with_name("english_golden.json")


def test_embedding_imports_only_numpy_and_onnxruntime(english: Path) -> None:
    command = [sys.executable, "-c", FORBID + PROGRAM, str(english), str(golden_file())]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--help"], 0, "Usage: elmo"),
        (["info", "FOLDER"], 0, "(ONNX, float32)"),
        (["info"], 1, "pip install torch"),
        (["doctor"], 1, "pip install torch"),
    ],
)
def test_commands_without_torch(full: Path, arguments: list[str], code: int, said: str) -> None:
    arguments = [str(full) if argument == "FOLDER" else argument for argument in arguments]
    program = (
        f"{FORBID}\nsys.argv = {['elmo', *arguments]!r}\nfrom elmokit.cli.main import run\nrun()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr


def test_export_without_the_onnx_package_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [n for n in sys.modules if n.startswith("elmokit.convert.onnx")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(DependencyError, match=r"pip install 'elmokit\[onnx\]'"):
        onnxdir.build(make_parts())


@pytest.mark.slow
def test_embedding_in_an_environment_without_torch(english: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "env"], check=True)
    python = tmp_path / "env" / "bin" / "python"
    install = [python, "-m", "pip", "install", "-q"]
    subprocess.run([*install, "--no-deps", str(ROOT)], check=True)
    subprocess.run([*install, "numpy", "onnxruntime", "pydantic"], check=True)
    absent = subprocess.run([python, "-c", "import torch"], check=False, capture_output=True)
    assert absent.returncode != 0
    command = [python, "-c", PROGRAM, english, golden_file()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    subprocess.run([*install, "typer", "tqdm", "safetensors", "h5py", "filelock"], check=True)
    elmo = python.with_name("elmo")
    (tmp_path / "text.txt").write_text("I read the book yesterday.\n\nCan you read it?\n")
    embed: list[str | Path] = ["embed", "text.txt", "--model", english, "--chunk-bytes", "20", "-o"]
    for arguments, code, said in (
        (["--help"], 0, "Usage: elmo"),
        (["info", english], 0, "(ONNX, float32)"),
        (["info"], 1, "pip install torch"),
        ([*embed, "one.h5"], 0, "3 sentences, 11 tokens"),
        ([*embed, "two.h5", "--workers", "2"], 0, "3 sentences, 11 tokens"),
        ([*embed, "folder"], 1, "pip install 'elmokit[arrow]'"),
        (["embed", "text.txt", "-o", "v.h5"], 1, "pip install torch"),
    ):
        done = subprocess.run(
            [elmo, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr
        assert said in done.stdout + done.stderr
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()
    expected = elmokit.load(device="cpu").embed("I read the book yesterday.")
    with elmokit.open_vectors(tmp_path / "one.h5") as stored:
        np.testing.assert_allclose(stored[0].vectors, expected.layers, atol=TOLERANCE)
