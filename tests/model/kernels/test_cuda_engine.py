"""The GPU reader, compared with the reference modules; in Triton's interpreter without a GPU."""

from __future__ import annotations

import pytest
import torch

from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmokit.embed.precision import exact_products
from elmokit.model.bilm import BiLM
from elmokit.model.chars import char_ids_table
from elmokit.model.lstm import LstmState
from elmokit.model.packing import Packing

pytest.importorskip("triton", reason="the fast kernels need Triton (Linux)")

from elmokit.model.kernels import cuda_engine
from elmokit.model.kernels.cuda_engine import CudaEngine

CNN = CharCnnConfig(embedding_dim=4, filters=((1, 4), (2, 6), (3, 6)), n_highway=1)
LENGTHS = [[3, 5, 1, 5], [0, 2, 0, 7], [1]]


def model(lstm: LstmConfig, device: str = "cpu") -> BiLM:
    torch.manual_seed(0)
    bilm = BiLM(BiLMConfig(lstm, CNN)).to(device).eval().requires_grad_(False)
    for parameter in bilm.parameters():  # large enough that both clips matter
        parameter *= 3.0 if parameter.dim() == 2 else 1.0
    return bilm


@pytest.fixture(autouse=True)
def _few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.cuda.is_available():  # unused rows are slow in the interpreter
        monkeypatch.setattr(cuda_engine, "_ROW_STEP", 4)


def state_of(bilm: BiLM, rows: int) -> LstmState:
    zeros = LstmState.zeros(bilm.config.lstm, rows, like=next(bilm.parameters()))
    return LstmState(*(0.3 * torch.randn_like(part) for part in zeros))


def compare(bilm: BiLM, engine: CudaEngine, lengths: list[int], *, tolerance: float) -> None:
    device = next(bilm.parameters()).device
    packing = Packing.of(lengths)
    x = torch.randn(packing.n_tokens, bilm.config.lstm.projection_dim, device=device)
    state, back = state_of(bilm, len(lengths)), torch.randn_like(x)
    for given in ((None, None), (state, None), (state, back)):
        layers, last = bilm.contextualize(x, packing, *given)
        found, found_last = engine.contextualize(x, packing, *given)
        for plain, fast in ((layers, found), *zip(last, found_last, strict=True)):
            torch.testing.assert_close(plain, fast, rtol=0, atol=tolerance)


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize(
    "lstm",
    [
        LstmConfig(12, 8, 2, 0.5, 0.4),
        LstmConfig(12, 8, 1, None, None),
        LstmConfig(10, 4, 3, 0.2, 0.5, use_skip_connections=False),
    ],
)
def test_ragged_batch_equals_the_reference_modules(lstm: LstmConfig, lengths: list[int]) -> None:
    bilm = model(lstm)
    compare(bilm, CudaEngine(bilm), lengths, tolerance=4e-6)


def test_batches_of_different_sizes_share_an_engine() -> None:
    bilm = model(LstmConfig(12, 8, 2, 0.5, 0.4))
    engine = CudaEngine(bilm)
    for lengths in ([2, 1], [9, 3, 4, 4, 4, 7], [2, 1], [70], [5] * 20, []):
        compare(bilm, engine, lengths, tolerance=2e-5)


def test_batch_without_tokens_does_not_change_the_state() -> None:
    bilm = model(LstmConfig(12, 8, 2, 0.5, 0.4))
    compare(bilm, CudaEngine(bilm), [0, 0], tolerance=1e-9)


def test_token_encoder_equals_the_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    # Blocks are padded, which is slow in the interpreter.
    monkeypatch.setattr(cuda_engine, "_WORDS", 2)
    bilm = model(LstmConfig(12, 8, 2, 0.5, 0.4))
    ids = torch.from_numpy(char_ids_table(["a", "Straße", "x" * 60])).long()
    found = CudaEngine(bilm).encode(ids)
    assert (found - bilm.encoder(ids)).abs().max() < 1e-6


ORIGINAL = LstmConfig(4096, 512, 2, 3.0, 3.0)


def original() -> BiLM:
    torch.manual_seed(0)
    return BiLM(BiLMConfig(ORIGINAL, CharCnnConfig())).cuda().eval().requires_grad_(False)


@pytest.mark.gpu
@pytest.mark.parametrize("lengths", [[22], [22, 9], [30, 4, 17] * 50])
def test_float32_on_a_gpu_is_exact_with_and_without_graphs(lengths: list[int]) -> None:
    bilm = original()
    engine = CudaEngine(bilm)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("highest")  # of the reference implementation
        for _ in range(3):  # a number of rows runs without a graph, is captured, and is replayed
            compare(bilm, engine, lengths, tolerance=1e-5)
    finally:
        torch.set_float32_matmul_precision(before)
    assert engine._workspace is not None
    assert any(graph is not None for graph in engine._workspace._graphs.values())


@pytest.mark.gpu
def test_results_are_not_overwritten_when_a_graph_is_replayed() -> None:
    bilm = original()
    engine = CudaEngine(bilm)
    packing = Packing.of([12])
    xs = torch.randn(3, 12, 512, device="cuda")
    results = [engine.contextualize(x, packing)[0] for x in (*xs, *xs)]
    for first, again in zip(results[:3], results[3:], strict=True):
        assert (first - again).abs().max() < 1e-5
    assert (results[0] - results[1]).abs().max() > 0.01


@pytest.mark.gpu
def test_bfloat16_on_a_gpu_is_close_to_float32() -> None:
    bilm = original()
    packing = Packing.of([20, 7, 33] * 20)
    x = 0.5 * torch.randn(packing.n_tokens, 512, device="cuda")
    exact, _ = CudaEngine(bilm).contextualize(x, packing)
    near, _ = CudaEngine(bilm, torch.bfloat16).contextualize(x, packing)
    cosine = torch.cosine_similarity(exact, near, dim=-1)
    assert cosine.min() > 0.999
    ids = torch.from_numpy(char_ids_table(["play", "Straße", "x" * 60])).long()
    with exact_products(torch.device("cuda")):  # without TF32, which cuDNN uses by default
        plain = bilm.encoder(ids.cuda())
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.bfloat16, 5e-2)):
            found = CudaEngine(bilm, dtype).encode(ids)
            assert (found - plain).abs().max() < tolerance * plain.abs().max()
