"""Corpora embedded with an ONNX model: the same vectors as with torch, and the same guarantees."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elmokit
from elmokit.bulk.executors import Workers
from elmokit.bulk.formats import open_vectors
from elmokit.bulk.run import embed_corpus
from elmokit.bulk.settings import EmbedSettings
from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.model import ElmoModel
from elmokit.embed.onnx_export import export
from elmokit.embed.onnx_model import OnnxModel
from elmokit.errors import ConfigError
from elmokit.sources.modeldir import ModelParts
from elmokit.sources.resolve import load_parts
from tests.bulk.runs import SUFFIXES, TEXT, Stopped, names, stop_after
from tests.bulk.test_folder import assert_same_files
from tests.conftest import TINY_MODEL, random_bilm
from tests.convert.test_onnx import LARGE
from tests.sources.models import make_parts

TOLERANCE = 1e-5
STATES = [("reset", 1), ("warm", 1), ("carry", 1), ("carry", 3)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Export a model with a warm state to ONNX."""
    path = tmp_path_factory.mktemp("models") / "onnx"
    export(make_parts(full=True), path)
    return path


@pytest.fixture
def onnx(folder: Path) -> OnnxModel:
    return elmokit.load(folder, backend="onnx")


@pytest.fixture(scope="module")
def exact() -> ElmoModel:
    return ElmoModel(make_parts(full=True), device="cpu")


def settings_of(state: Any, rows: int = 1, **more: Any) -> EmbedSettings:
    return EmbedSettings(state=state, rows=rows, chunk_bytes=20, **more)


def assert_near(one: Path, other: Path) -> None:
    with open_vectors(one) as a, open_vectors(other) as b:
        assert len(a) == len(b)
        for here, there in zip(a, b, strict=True):
            assert here.tokens == there.tokens
            np.testing.assert_allclose(here.vectors, there.vectors, atol=TOLERANCE)


# ----------------------------------------------------------------------- same vectors as with torch


@pytest.mark.parametrize(("state", "rows"), STATES)
def test_files_contain_the_vectors_of_torch(
    onnx: OnnxModel, exact: ElmoModel, text: Path, tmp_path: Path, state: str, rows: int
) -> None:
    settings = settings_of(state, rows)
    for model, name in ((onnx, "onnx.npz"), (exact, "torch.npz")):
        assert embed_corpus(model, [text], tmp_path / name, settings).sentences == 8
    assert_near(tmp_path / "onnx.npz", tmp_path / "torch.npz")
    with open_vectors(tmp_path / "onnx.npz") as stored:
        expected = onnx.embed(TEXT.split("\n")[:-1], state, rows=rows)  # type: ignore[call-overload]
        for found, wanted in zip(stored, expected, strict=True):
            np.testing.assert_allclose(found.vectors, wanted.layers, atol=2e-6)


@pytest.mark.parametrize("state", ["reset", "warm"])
def test_directories_of_shards_contain_the_vectors_of_torch(
    onnx: OnnxModel, exact: ElmoModel, text: Path, tmp_path: Path, state: str
) -> None:
    pytest.importorskip("pyarrow")
    for model, name in ((onnx, "onnx"), (exact, "torch")):
        embed_corpus(model, [text, text], tmp_path / name, settings_of(state))
    assert_near(tmp_path / "onnx", tmp_path / "torch")


def test_example_text_with_the_tiny_model(tmp_path: Path) -> None:
    corpus = Path(__file__).resolve().parents[2] / "examples" / "corpus.txt"
    text = tmp_path / "text.txt"
    text.write_text("".join(corpus.read_text("utf-8").splitlines(keepends=True)[:40]))
    export(load_parts(TINY_MODEL), tmp_path / "onnx")
    settings = EmbedSettings(split=True, layer="average", chunk_bytes=1200)
    for model, name in ((TINY_MODEL, "torch.npz"), (tmp_path / "onnx", "onnx.npz")):
        done = embed_corpus(elmokit.load(model), [text], tmp_path / name, settings)
        assert done.tokens > 500
    assert_near(tmp_path / "onnx.npz", tmp_path / "torch.npz")


# --------------------------------------------------------------------------------- interruptions


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize(("state", "rows"), STATES)
def test_run_interrupted_after_every_chunk_gives_the_same_bytes(
    onnx: OnnxModel, text: Path, tmp_path: Path, suffix: str, state: str, rows: int
) -> None:
    settings = settings_of(state, rows)
    embed_corpus(onnx, [text], whole := tmp_path / f"whole{suffix}", settings)
    out = tmp_path / f"pieces{suffix}"
    stops = 0
    while not out.exists():
        try:
            stop = stop_after(1)
            embed_corpus(onnx, [text], out, settings, resume=stops > 0, on_progress=stop)
        except Stopped:
            stops += 1
    assert stops > 1
    assert out.read_bytes() == whole.read_bytes()


def test_two_workers_give_the_same_bytes_as_one_process(
    folder: Path, onnx: OnnxModel, text: Path, tmp_path: Path
) -> None:
    pytest.importorskip("pyarrow")
    workers = Workers(str(folder), n_workers=2)
    assert workers.devices() == ["cpu", "cpu"]
    for model, name in ((onnx, "one"), (workers, "two")):
        embed_corpus(model, [text], tmp_path / f"{name}.h5", settings_of("warm"))
        embed_corpus(model, [text], tmp_path / name, settings_of("reset"))
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()
    assert_same_files(tmp_path / "one", tmp_path / "two")


# -------------------------------------------------------------------------------- model fingerprint


@pytest.fixture
def begun(onnx: OnnxModel, text: Path, tmp_path: Path) -> Callable[..., Path]:
    """Start a run and interrupt it."""

    def begin(settings: EmbedSettings) -> Path:
        out = tmp_path / "v.npz"
        with pytest.raises(Stopped):
            embed_corpus(onnx, [text], out, settings, on_progress=stop_after(2))
        return out

    return begin


def test_run_resumes_with_a_copy_of_the_model_directory(
    folder: Path, onnx: OnnxModel, begun: Callable[..., Path], text: Path, tmp_path: Path
) -> None:
    out = begun(settings_of("reset"))
    copy = elmokit.load(shutil.copytree(folder, tmp_path / "copy"), backend="onnx")
    assert embed_corpus(copy, [text], out, settings_of("reset"), resume=True).resumed_sentences


def test_run_does_not_resume_with_another_model(
    begun: Callable[..., Path], text: Path, tmp_path: Path
) -> None:
    out = begun(settings_of("reset"))
    export(make_parts(full=True, seed=1), tmp_path / "other")
    other = elmokit.load(tmp_path / "other", backend="onnx")
    with pytest.raises(ConfigError, match="model was '"):
        embed_corpus(other, [text], out, settings_of("reset"), resume=True)


def test_int8_is_close_and_has_another_fingerprint(text: Path, tmp_path: Path) -> None:
    bilm = random_bilm(LARGE, scale=1.0)
    for storage in ("float32", "int8"):
        export(ModelParts(bilm), tmp_path / storage, storage=storage)
    exact, rounded = (elmokit.load(tmp_path / name) for name in ("float32", "int8"))
    settings = settings_of("reset")
    for model, name in ((exact, "exact.npz"), (rounded, "int8.npz")):
        embed_corpus(model, [text], tmp_path / name, settings)
    with open_vectors(tmp_path / "exact.npz") as a, open_vectors(tmp_path / "int8.npz") as b:
        for here, there in zip(a, b, strict=True):
            x, y = here.vectors, there.vectors
            lengths = np.linalg.norm(x, axis=-1) * np.linalg.norm(y, axis=-1)
            assert ((x * y).sum(-1) > 0.999 * lengths).all()
        assert not np.array_equal(a[0].vectors, b[0].vectors)
    with pytest.raises(Stopped):
        embed_corpus(exact, [text], tmp_path / "v.npz", settings, on_progress=stop_after(1))
    with pytest.raises(ConfigError, match=r"model was '.*precision was 'exact' and is now 'fast'"):
        embed_corpus(rounded, [text], tmp_path / "v.npz", settings, resume=True)


def test_run_with_onnx_does_not_resume_with_the_torch_model(
    begun: Callable[..., Path], exact: ElmoModel, text: Path
) -> None:
    out = begun(settings_of("reset"))
    with pytest.raises(ConfigError, match="model was '"):
        embed_corpus(exact, [text], out, settings_of("reset"), resume=True)


def test_changed_warm_state_is_rejected_only_if_it_is_used(
    folder: Path, begun: Callable[..., Path], text: Path, tmp_path: Path
) -> None:
    other = shutil.copytree(folder, tmp_path / "other")
    with np.load(folder / "warm.npz") as warm:
        np.savez(other / "warm.npz", cell=warm["cell"] + 1, hidden=warm["hidden"])
    model = elmokit.load(other, backend="onnx")
    out = begun(settings_of("warm"))
    with pytest.raises(ConfigError, match="model was '"):
        embed_corpus(model, [text], out, settings_of("warm"), resume=True)
    shutil.rmtree(tmp_path / ".v.npz.chunks")
    out = begun(settings_of("reset"))
    assert embed_corpus(model, [text], out, settings_of("reset"), resume=True).resumed_sentences


def test_vocabulary_and_lexicon_are_part_of_the_fingerprint(tmp_path: Path) -> None:
    export(make_parts("words"), tmp_path / "onnx")
    before = fingerprint(elmokit.load(tmp_path / "onnx"))
    vocab = tmp_path / "onnx" / "vocab.txt"
    vocab.write_text(vocab.read_text().replace("book", "look"))
    assert fingerprint(elmokit.load(tmp_path / "onnx")) != before


def test_fingerprint_of_a_torch_model_is_stable() -> None:
    """Indexes, cached layers and trained tasks identify their model by its fingerprint."""
    model = elmokit.load(TINY_MODEL, device="cpu")
    assert fingerprint(model) == "3d67b3cde77a0638db27eb5273634d34"


# ---------------------------------------------------------------------------------------- errors


def test_onnx_workers_run_on_the_cpu(folder: Path, text: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Invalid device 'cuda"):
        Workers(str(folder), device="cuda", n_workers=2).devices()
    with pytest.raises(ConfigError, match=r"--to onnx --storage int8"):
        embed_corpus(Workers(str(folder), precision="fast"), [text], tmp_path / "v.npz")
    assert names(tmp_path) == ["text.txt"]
