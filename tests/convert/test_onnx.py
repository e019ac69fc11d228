"""ONNX graphs: same values as the PyTorch modules for all shapes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("onnx", reason="the extra 'onnx' is not installed")
pytest.importorskip("onnxruntime", reason="the extra 'onnx' is not installed")

import onnx
import onnxruntime

from elmokit.config import BiLMConfig, CharCnnConfig, LexiconConfig, LstmConfig
from elmokit.convert.onnx_graph import Graph
from elmokit.convert.onnx_modules import bilm_model, encoder_model
from elmokit.embed.onnx_export import export
from elmokit.model.bilm import BiLM
from elmokit.model.chars import char_ids_table
from elmokit.model.lexicon import Lexicon
from elmokit.model.lexicon_encoder import LexiconEncoder
from elmokit.model.lstm import LstmState
from elmokit.model.packing import Packing
from elmokit.sources.modeldir import ModelParts
from elmokit.sources.resolve import load_parts
from tests.conftest import TINY, TINY_MODEL, random_bilm
from tests.sources.models import CONFIGS

TOLERANCE = 1e-5
GUIDE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "onnx.md"
LARGE = BiLMConfig(  # matrices that are large enough for int8
    LstmConfig(dim=256, projection_dim=64),
    CharCnnConfig(embedding_dim=8, filters=((1, 32), (3, 96)), n_highway=1),
)


def session(model: onnx.ModelProto) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


class Batch:
    """Random tokens and states for a biLM, as inputs of torch and ONNX."""

    def __init__(self, bilm: BiLM, lengths: Sequence[int], seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        lstm = bilm.config.lstm
        self.lengths = np.array(lengths, dtype=np.int64)
        self.x = rng.normal(size=(len(lengths), max(lengths), lstm.projection_dim))
        self.x = self.x.astype(np.float32)
        for row, n in zip(self.x, lengths, strict=True):
            row[n:] = np.nan  # padding values must not matter
        sizes = (lstm.dim, lstm.projection_dim)
        self.state = [
            rng.normal(scale=0.3, size=(2, lstm.n_layers, len(lengths), n)).astype(np.float32)
            for n in sizes
        ]

    def feed(self) -> dict[str, Any]:
        cell, hidden = self.state
        return {"x": self.x, "lengths": self.lengths, "cell": cell, "hidden": hidden}

    def plain(self, bilm: BiLM) -> tuple[Any, Any, Any]:
        packing = Packing.of(self.lengths)
        state = LstmState(*map(torch.from_numpy, self.state))
        with torch.no_grad():
            packed, last = bilm.contextualize(
                packing.pack(torch.from_numpy(self.x)), packing, state
            )
        return packing.unpack(packed).numpy(), last.cell.numpy(), last.hidden.numpy()


def check(bilm: BiLM, lengths: Sequence[int], tolerance: float = TOLERANCE) -> None:
    batch = Batch(bilm, lengths)
    found = session(bilm_model(bilm)).run(None, batch.feed())
    for here, there in zip(found, batch.plain(bilm), strict=True):
        np.testing.assert_allclose(here, there, atol=tolerance)


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("lengths", [[5, 1, 3, 0, 5], [1], [4]], ids=str)
def test_ragged_batches_equal_torch(kind: str, lengths: list[int]) -> None:
    check(random_bilm(CONFIGS[kind]), lengths)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    dim=st.integers(1, 19),
    less=st.integers(0, 9),
    n_layers=st.integers(1, 3),
    clips=st.tuples(*[st.sampled_from([None, 0.2, 1.0])] * 2),
    skip=st.booleans(),
    lengths=st.lists(st.integers(0, 7), min_size=1, max_size=5).filter(any),
)
def test_unusual_sizes_clips_and_skips(
    dim: int,
    less: int,
    n_layers: int,
    clips: tuple[float | None, float | None],
    skip: bool,
    lengths: list[int],
) -> None:
    lstm = LstmConfig(dim, max(1, dim - less), n_layers, *clips, use_skip_connections=skip)
    # onnxruntime has its own formulas for sigmoid and tanh, and without clipping some of these
    # random models amplify the difference: up to 2.1e-5 from float64 was observed, and 1.4e-6 for
    # torch.
    check(random_bilm(BiLMConfig(lstm, CONFIGS["characters"].char_cnn)), lengths, 1e-4)


def test_padding_does_not_affect_any_vector() -> None:
    bilm = random_bilm(TINY)
    reader, batch = session(bilm_model(bilm)), Batch(bilm, [6, 2])
    layers = reader.run(["layers"], batch.feed())[0]
    assert (layers[:, 1, 2:] == 0).all()
    fed = batch.feed()
    alone = {
        "x": fed["x"][1:, :2],
        "lengths": fed["lengths"][1:],
        "cell": fed["cell"][:, :, 1:],
        "hidden": fed["hidden"][:, :, 1:],
    }
    np.testing.assert_allclose(
        reader.run(["layers"], alone)[0][:, 0], layers[:, 1, :2], atol=TOLERANCE
    )


def test_one_state_is_broadcast_to_all_sentences() -> None:
    bilm = random_bilm(TINY)
    reader, batch = session(bilm_model(bilm)), Batch(bilm, [3, 4])
    one = batch.feed() | {name: batch.feed()[name][:, :, :1] for name in ("cell", "hidden")}
    both = one | {name: np.repeat(one[name], 2, axis=2) for name in ("cell", "hidden")}
    for here, there in zip(reader.run(None, one), reader.run(None, both), strict=True):
        np.testing.assert_array_equal(here, there)


def test_text_in_two_parts_equals_the_whole_text() -> None:
    bilm = random_bilm(TINY)
    reader, batch = session(bilm_model(bilm)), Batch(bilm, [7])
    whole = reader.run(["layers"], batch.feed())[0]
    half = TINY.lstm.projection_dim
    fed, parts = batch.feed(), []
    for piece in (slice(0, 4), slice(4, 7)):
        x = batch.x[:, piece]
        fed |= {"x": x, "lengths": np.array([x.shape[1]])}
        layers, fed["cell"], fed["hidden"] = reader.run(None, fed)
        parts.append(layers)
    # The forward LM continues; the backward LM starts each part from its own end.
    np.testing.assert_allclose(
        np.concatenate(parts, axis=2)[..., :half], whole[..., :half], atol=TOLERANCE
    )


# -------------------------------------------------------------------------------------- the encoder


@pytest.mark.parametrize("kind", [kind for kind in CONFIGS if kind != "words"])
def test_token_encoder_equals_torch(kind: str) -> None:
    bilm = random_bilm(CONFIGS[kind])
    ids = char_ids_table(["<S>", "a", "Donaudampfschiff", "\u65e5\u672c", "x" * 70, "</S>"])
    check_encoder(bilm, ids)
    found = session(encoder_model(bilm)).run(None, {"ids": ids[:2]})[0]
    # More padding than necessary.
    cut = session(encoder_model(bilm)).run(None, {"ids": ids[:2, :9]})[0]
    np.testing.assert_allclose(cut, found, atol=TOLERANCE)


def test_words_are_looked_up() -> None:
    check_encoder(random_bilm(CONFIGS["words"]), np.array([1, 5, 0, 2]))


@pytest.mark.parametrize("tables", ["both", "words", "characters"])
def test_lexicon_equals_torch(tables: str) -> None:
    words = ("<oov>", "<bos>", "<eos>", "ab") if tables != "characters" else None
    signs = ("<bos>", "<eos>", "<oov>", "<pad>", "<bow>", "<eow>", *"abc")
    characters = signs if tables != "words" else None
    shape = LexiconConfig(
        *((4, 3) if words else (0, 0)),
        *((9, 4, ((1, 4), (2, 5)), 1) if characters else (0, 0, (), 0)),
        max_characters_per_token=8,
    )
    bilm = random_bilm(BiLMConfig(LstmConfig(12, 6), None, None, shape))
    assert isinstance(bilm.encoder, LexiconEncoder)
    bilm.encoder.lexicon = Lexicon(words, characters, 8)
    check_encoder(bilm, bilm.encoder.required_lexicon.token_ids(["ab", "<S>", "cabbage", "zz"]))


def check_encoder(bilm: BiLM, ids: Any) -> None:
    with torch.no_grad():
        there = bilm.encoder(torch.from_numpy(ids)).numpy()
    found = session(encoder_model(bilm)).run(None, {"ids": ids})[0]
    np.testing.assert_allclose(found, there, atol=TOLERANCE)


# -------------------------------------------------------------------------------------------- int8


@pytest.mark.parametrize("wide", [False, True])
def test_int8_product_is_accurate_to_its_bits(wide: bool) -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=(256, 128)).astype(np.float32)
    w[3] = 0
    x = rng.normal(size=(40, 128)).astype(np.float32)
    x[0] = 0
    # Each half between two large values once: incorrect carries would show there.
    x[1:, 0], x[1:, 1:40] = 63 * 128 + 63, 128 * np.arange(-20, 19)[:, None] + 64
    graph = Graph("product", "int8")
    y = graph.product(graph.input("x", ["n", 128]), w, wide=wide)
    graph.output(y, "y", ["n", 256])
    model = graph.model("a product")
    assert "MatMulInteger" in {node.op_type for node in model.graph.node}
    found = session(model).run(None, {"x": x})[0]
    assert (found[0] == 0).all()
    assert (found[:, 3] == 0).all()
    # Compared with the rounded weights, so that only the rounding of x remains: half a step each.
    scale = np.abs(w).max(axis=1, keepdims=True) / 127
    rounded = np.rint(w / np.maximum(scale, 1e-30)) * scale
    step = np.abs(x).max(axis=1, keepdims=True) / (63 * 128 + 63 if wide else 63)
    bound = step / 2 * np.abs(rounded).sum(axis=1) + 1e-3
    assert (np.abs(found - x @ rounded.T) <= bound).all()


def test_int8_variant_is_small_accurate_and_independent_of_the_batch() -> None:
    bilm = random_bilm(LARGE, scale=1.0)
    model = bilm_model(bilm, "int8")
    assert len(model.SerializeToString()) < 0.35 * len(bilm_model(bilm).SerializeToString())
    reader, batch = session(model), Batch(bilm, [8, 5, 5])
    fed = batch.feed()
    layers = reader.run(["layers"], fed)[0]
    there = batch.plain(bilm)[0]
    lengths = np.linalg.norm(layers, axis=-1) * np.linalg.norm(there, axis=-1)
    cosines = ((layers * there).sum(-1) / np.maximum(lengths, 1e-9))[:, there.any((0, 3))]
    assert cosines.mean(axis=1).min() > 0.999
    assert 1 - cosines[1:].min() > 1e-7  # differs from the exact one
    fed["x"] = fed["x"].copy()
    fed["x"][0] *= 50  # another sentence in the batch
    np.testing.assert_array_equal(reader.run(["layers"], fed)[0][:, 1:], layers[:, 1:])


# ------------------------------------------------------------------------------------ documentation


def test_documented_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    export(load_parts(TINY_MODEL), tmp_path / "english-onnx")
    blocks = GUIDE.read_text("utf-8").split("```python\n")[1:]
    (program,) = [b.split("```")[0] for b in blocks if "onnxruntime.InferenceSession" in b]
    assert "elmokit" not in program
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(program, names)
    bilm = load_parts(TINY_MODEL).bilm
    for words, found in zip(names["sentences"], names["vectors"], strict=True):
        ids = torch.from_numpy(char_ids_table(["<S>", *words, "</S>"])[None])
        with torch.no_grad():
            there = bilm(ids).layers[:, 0, 1:-1].numpy()
        np.testing.assert_allclose(found, there, atol=TOLERANCE)


def test_model_that_loses_too_much_accuracy_with_int8_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from elmokit.embed import fast
    from elmokit.errors import ConfigError

    monkeypatch.setattr(fast, "MIN_COSINE", 1.1)
    with pytest.raises(ConfigError, match="int8 is not accurate enough"):
        export(ModelParts(random_bilm(TINY)), tmp_path / "out", storage="int8")
    assert not (tmp_path / "out").exists()
