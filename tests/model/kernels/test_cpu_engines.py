"""Fast CPU implementations, compared with the reference modules that they replace."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmokit.model.bilm import BiLM
from elmokit.model.charcnn import CharacterEncoder
from elmokit.model.chars import char_ids_table
from elmokit.model.kernels import cpu_engine, cpu_native
from elmokit.model.kernels.cpu_encoder import CpuEncoder
from elmokit.model.kernels.cpu_engine import CpuEngine, TorchEngine, run_in_parallel
from elmokit.model.kernels.cpu_linear import Int8Linear, PackedLinear
from elmokit.model.kernels.cpu_native import (
    NativeError,
    NativeHead,
    build,
    native_engine,
    open_library,
)
from elmokit.model.lstm import LstmState
from elmokit.model.packing import Packing
from elmokit.model.quantize import dequantize_rows, quantize_rows, quantize_rows_wide
from elmokit.model.softmax import LMHead
from tests.conftest import TINY, random_bilm

# The kernel's tiles have 64 columns and 6 rows: 48 and 80 leave a remainder of each kind.
SHAPE = BiLMConfig(
    LstmConfig(dim=80, projection_dim=48, cell_clip=0.6, proj_clip=0.4), TINY.char_cnn
)
NO_PROJECTION = BiLMConfig(LstmConfig(dim=32, projection_dim=32, n_layers=3), TINY.char_cnn)
LENGTHS = [5, 0, 9, 1, 9, 3, 7, 2]

Make = Callable[[BiLM], CpuEngine]


@pytest.fixture(params=[1, 2, 5])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    assert torch.get_num_threads() == request.param
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kernels")
    try:
        open_library(build(folder))
    except NativeError as error:
        pytest.skip(f"no native kernel here: {error}")
    return folder


def batch(config: BiLMConfig, lengths: list[int] = LENGTHS) -> tuple[Tensor, Packing, LstmState]:
    torch.manual_seed(1)
    packing = Packing.of(lengths)
    x = torch.randn(packing.n_tokens, config.lstm.projection_dim)
    zero = LstmState.zeros(config.lstm, len(lengths), like=x)
    return x, packing, LstmState(*(torch.randn_like(part) * 0.3 for part in zero))


# ----------------------------------------------------------------------------------------- exact


@pytest.mark.parametrize("config", [TINY, SHAPE, NO_PROJECTION], ids=["tiny", "clips", "no-proj"])
def test_exact_equals_the_reference_modules(config: BiLMConfig, threads: int) -> None:
    bilm = random_bilm(config)
    engine = TorchEngine(bilm)
    x, packing, state = batch(config)
    for start in (None, state):
        with torch.no_grad():
            expected, expected_state = bilm.contextualize(x, packing, start)
        found, found_state = engine.contextualize(x, packing, start)
        # The CPU determines the order of summation: 2.1e-6 was observed without AVX-512.
        torch.testing.assert_close(found, expected, atol=5e-6, rtol=0)
        torch.testing.assert_close(found_state, expected_state, atol=5e-6, rtol=0)


@pytest.mark.parametrize("make", ["exact", "native"])
def test_directions_may_have_different_input_vectors(
    make: str, request: pytest.FixtureRequest
) -> None:
    bilm = random_bilm(SHAPE, scale=1.0)
    engine: CpuEngine = TorchEngine(bilm)
    if make == "native":
        engine = native_engine(bilm, request.getfixturevalue("kernels"))
    x, packing, state = batch(SHAPE)
    back = torch.randn_like(x)
    with torch.no_grad():
        expected, _ = bilm.contextualize(x, packing, state, back)
        other, _ = bilm.contextualize(back, packing, state)
        found, _ = engine.contextualize(x, packing, state, back)
    d = SHAPE.lstm.projection_dim
    torch.testing.assert_close(expected[..., d:], other[..., d:])
    tolerance = 5e-6 if make == "exact" else 0.05
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize(("words", "rows"), [(64, 1), (1000, 7), (130, 400)])
def test_native_softmax_equals_the_reference(words: int, rows: int, kernels: Path) -> None:
    torch.manual_seed(0)
    head = LMHead(words, 48)
    with torch.no_grad():
        head.bias.normal_(std=2.0)
        # Values that int8 represents exactly: only errors of sums and exponentials remain.
        q, scale = quantize_rows(head.weight)
        head.weight.copy_(dequantize_rows(q, scale))
        h = dequantize_rows(*quantize_rows(3 * torch.randn(rows, 48)))
        targets = torch.randint(words, (rows,))
        found = NativeHead(head, open_library(build(kernels))).losses(h, targets)
        expected = -head.double()(h.double()).gather(1, targets.unsqueeze(1)).squeeze(1)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=0)


def test_exact_processes_long_sentences_in_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    bilm = random_bilm(TINY)
    x, packing, state = batch(TINY, [40, 3, 17])
    whole, _ = TorchEngine(bilm).contextualize(x, packing, state)
    monkeypatch.setattr(cpu_engine, "_TOKENS_AT_ONCE", 4)
    torch.testing.assert_close(TorchEngine(bilm).contextualize(x, packing, state)[0], whole)


def test_input_state_is_not_modified() -> None:
    bilm = random_bilm(TINY)
    x, packing, state = batch(TINY)
    before = [part.clone() for part in state]
    TorchEngine(bilm).contextualize(x, packing, state)
    assert all(torch.equal(a, b) for a, b in zip(before, state, strict=True))


@pytest.mark.parametrize("packed", [True, False])
def test_packed_products_equal_regular_products(
    packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not packed:
        monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    w, b, plus = torch.randn(96, 48), torch.randn(96), torch.randn(7, 96)
    x = torch.randn(7, 48)
    torch.testing.assert_close(PackedLinear(w, b)(x), F.linear(x, w, b))
    torch.testing.assert_close(PackedLinear(w)(x, plus), F.linear(x, w) + plus)
    torch.testing.assert_close(PackedLinear(w, b)(x, plus), F.linear(x, w, b) + plus)


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_words_of_all_lengths_equal_the_reference_convolutions(activation: str) -> None:
    torch.manual_seed(0)
    config = CharCnnConfig(activation=activation, filters=((1, 16), (2, 16), (7, 32)), n_highway=2)
    encoder = CharacterEncoder(config, 16).eval()
    words = ["", "a", "<S>", "</S>", *("w" * n for n in range(1, 60)), "é" * 24, "\U0001f600"]
    ids = torch.from_numpy(char_ids_table(words, config.max_characters_per_token))
    with torch.no_grad():
        fast = CpuEncoder(encoder)
        torch.testing.assert_close(fast(ids), encoder(ids), atol=2e-6, rtol=1e-5)
        assert fast(ids[:0]).shape == (0, 16)
        # The result is bit-identical among other words.
        assert torch.equal(fast(ids[5:9]), fast(ids)[5:9])


# ------------------------------------------------------------------------------------------ int8


def rounded_bilm(bilm: BiLM) -> BiLM:
    """Create the same model with weights that int8 represents exactly."""
    for stack in (bilm.forward_lm, bilm.backward_lm):
        for name, weight in stack.named_parameters():
            if "weight" in name:
                weight.data = dequantize_rows(*quantize_rows(weight.data))
    return bilm


def quantized_reference(bilm: BiLM, x: Tensor, packing: Packing, state: LstmState) -> Tensor:
    """Run the reference modules in float64 with every input of a product quantized per row."""
    linear, addmm, lstm = F.linear, torch.addmm, bilm.config.lstm

    def rounded(a: Tensor) -> Tensor:
        # The input of the projection has 16 bits.
        if lstm.has_projection and a.shape[1] == lstm.dim:
            high, low, scale = quantize_rows_wide(a.float())
            return (256 * high.double() + low.double()) * scale.double().unsqueeze(1)
        return dequantize_rows(*quantize_rows(a.float())).double()

    model = rounded_bilm(bilm).double()
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(F, "linear", lambda a, *rest: linear(rounded(a), *rest))
        patch.setattr(torch, "addmm", lambda c, a, w: addmm(c, rounded(a), w))
        layers, _ = model.contextualize(
            x.double(), packing, LstmState(*(part.double() for part in state))
        )
    return layers.float()


def make_native(kernels: Path) -> Make:
    return lambda bilm: native_engine(bilm, kernels)


@pytest.fixture(params=["torch", "native"])
def make_int8(request: pytest.FixtureRequest) -> Make:
    if request.param == "torch":
        return lambda bilm: TorchEngine(bilm, int8=True)
    return make_native(request.getfixturevalue("kernels"))


@pytest.mark.parametrize("config", [SHAPE, NO_PROJECTION], ids=["clips", "no-proj"])
def test_int8_equals_the_reference_modules_on_quantized_values(
    config: BiLMConfig, make_int8: Make, threads: int
) -> None:
    x, packing, state = batch(config)
    found, _ = make_int8(random_bilm(config)).contextualize(x, packing, state)
    expected = quantized_reference(random_bilm(config), x, packing, state)
    # A value halfway between two integers may be rounded differently, which changes later values by
    # a fraction of a step; most tokens are not affected.
    difference = (found - expected).abs().amax(dim=(0, 2))
    assert difference.max() < 0.02
    assert difference.median() < 1e-5


def test_integer_products_are_exact() -> None:
    """Use values that int8 represents exactly and sums beyond 2^24: no bit may be lost."""
    generator = torch.Generator().manual_seed(0)
    q = torch.randint(-127, 128, (96, 2048), generator=generator)
    q[:, 0] = q[5] = 127
    x = torch.randint(-127, 128, (13, 2048), generator=generator)
    x[:, 0] = x[3] = 127
    expected = (x @ q.t()).float()
    assert torch.equal(Int8Linear(q.float())(x.float()), expected)


def test_int8_states_continue_a_text(make_int8: Make, threads: int) -> None:
    engine = make_int8(random_bilm(SHAPE))
    x, packing, _ = batch(SHAPE, [12])
    whole, whole_state = engine.contextualize(x, packing)
    d = SHAPE.lstm.projection_dim
    first, state = engine.contextualize(x[:5], Packing.of([5]))
    second, state = engine.contextualize(x[5:], Packing.of([7]), state)
    assert torch.equal(torch.cat([first, second], dim=1)[..., :d], whole[..., :d])
    assert torch.equal(state.cell[0], whole_state.cell[0])
    assert torch.equal(state.hidden[0], whole_state.hidden[0])


def test_native_vectors_are_bit_identical_for_any_batch_and_number_of_threads(
    kernels: Path,
) -> None:
    bilm = random_bilm(SHAPE)
    engine = native_engine(bilm, kernels)
    lengths = np.random.default_rng(0).integers(1, 12, 70).tolist()
    x, packing, state = batch(SHAPE, lengths)
    before = torch.get_num_threads()
    try:
        results = []
        for n in (1, 2, 8):
            torch.set_num_threads(n)
            results.append(engine.contextualize(x, packing, state))
    finally:
        torch.set_num_threads(before)
    for layers, last in results[1:]:
        assert torch.equal(layers, results[0][0])
        assert torch.equal(last.cell, results[0][1].cell)
    for row in (0, 17, 69):
        own = torch.from_numpy(np.flatnonzero(packing.rows == row))
        alone, _ = engine.contextualize(
            x[own], Packing.of([lengths[row]]), state.select(torch.tensor([row]))
        )
        assert torch.equal(alone, results[0][0][:, own])


def test_native_build_errors_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "false")
    with pytest.raises(NativeError, match="false failed"):
        build(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NativeError, match="no C compiler"):
        build(tmp_path)
    broken = tmp_path / "broken.so"
    broken.write_text("no library")
    with pytest.raises(NativeError):
        open_library(broken)


def test_unsupported_shapes_are_detected() -> None:
    assert cpu_native.supports(random_bilm(SHAPE))
    assert not cpu_native.supports(random_bilm(TINY))


# --------------------------------------------------------------------------------------- threads


def test_error_in_a_thread_is_raised_in_the_caller(threads: int) -> None:
    def fail() -> None:
        raise ValueError("in the thread")

    with pytest.raises(ValueError, match="in the thread"):
        run_in_parallel([lambda: None, fail])


def test_models_without_skip_connections(make_int8: Make) -> None:
    config = dataclasses.replace(
        SHAPE, lstm=dataclasses.replace(SHAPE.lstm, use_skip_connections=False)
    )
    bilm = random_bilm(config)
    x, packing, state = batch(config)
    with torch.no_grad():
        expected, _ = bilm.contextualize(x, packing, state)
    torch.testing.assert_close(TorchEngine(bilm).contextualize(x, packing, state)[0], expected)
    found, _ = make_int8(bilm).contextualize(x, packing, state)
    assert torch.cosine_similarity(found, expected, dim=-1).min() > 0.99
