"""The wavefront kernels, compared with the reference stacks: outputs, gradients, restarts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from elmokit.config import BiLMConfig, LstmConfig
from elmokit.model.bilm import BiLM

pytest.importorskip("triton", reason="the fast kernels need Triton (Linux)")

from elmokit.model.kernels.wavefront import StackedWeights, Wavefront

B, T, U, H, D = 5, 4, 7, 12, 8


def make(n_layers: int, skip: bool) -> BiLM:
    torch.manual_seed(0)
    # Clips so small that they apply all the time.
    bilm = BiLM(BiLMConfig(LstmConfig(H, D, n_layers, 0.5, 0.4, skip), None, n_words=1))
    for stack in (bilm.forward_lm, bilm.backward_lm):
        for p in stack.parameters():
            p.data.mul_(2.0).add_(torch.randn_like(p), alpha=0.2)
    return bilm


def plain(
    bilm: BiLM, x: Tensor, starts: Tensor, cell: Tensor, hidden: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the reference modules token by token; x (2, T, B, D), states (G, B, ...)."""
    tops, cells, hiddens = [], [], []
    for d, stack in enumerate((bilm.forward_lm, bilm.backward_lm)):
        c, r = cell[d::2], hidden[d::2]
        steps = []
        for t in range(T):
            goes_on = (~starts[d, t]).float()[None, :, None]
            outputs, c, r = stack(x[d, t], [B], c * goes_on, r * goes_on)
            steps.append(outputs[-1])
        tops.append(torch.stack(steps))
        cells.append(c)
        hiddens.append(r)
    interleave = lambda parts: torch.stack(parts, 1).flatten(0, 1)  # noqa: E731
    return torch.stack(tops), interleave(cells), interleave(hiddens)


def wave_of(bilm: BiLM, steps: int = T, dropout: float = 0.0) -> Wavefront:
    lstm, device = bilm.config.lstm, torch.get_default_device()
    wave = Wavefront(lstm, B, steps, dropout=dropout, dtype=torch.float32, device=device)
    wave.load_weights(StackedWeights.from_bilm(bilm))
    return wave


@pytest.mark.parametrize(("n_layers", "skip"), [(1, False), (2, False), (3, True)])
def test_outputs_states_and_gradients_equal_the_reference_stacks(
    n_layers: int, skip: bool, device: torch.device
) -> None:
    bilm = make(n_layers, skip)
    types = torch.randn(U, D, requires_grad=True)
    index = torch.randint(0, U, (2, T, B))
    starts = torch.rand(2, T, B) < 0.25
    cell = torch.randn(2 * n_layers, B, H).clamp(-0.5, 0.5)
    hidden = torch.randn(2 * n_layers, B, D).clamp(-0.4, 0.4)
    direction = torch.randn(2, T, B, D)

    wave = wave_of(bilm)
    wave.starts.copy_(starts)
    wave.load_state(cell, hidden)
    fast = wave.forward(types.detach(), index).clone()
    gradients = StackedWeights.zeros(bilm.config.lstm, device)
    d_types = wave.backward(direction, index, U, gradients)

    slow, last_cell, last_hidden = plain(bilm, types[index], starts, cell, hidden)
    slow.backward(direction)
    assert torch.allclose(fast, slow, atol=2e-6)
    for found, expected in zip(wave.state(), (last_cell, last_hidden), strict=True):
        assert torch.allclose(found, expected, atol=2e-6)
    assert types.grad is not None
    assert torch.allclose(d_types, types.grad, atol=2e-5)
    views = gradients.by_parameter()
    assert len(views) == 8 * n_layers
    for name, p in bilm.named_parameters():
        if name in views:
            assert p.grad is not None
            assert torch.allclose(views[name], p.grad, atol=2e-5), name


def test_adopted_weights_share_memory_with_the_parameters() -> None:
    bilm = make(2, True)
    before = {name: p.detach().clone() for name, p in bilm.named_parameters()}
    stacked = StackedWeights.from_bilm(bilm)
    for name, p in bilm.named_parameters():
        assert torch.equal(p, before[name])
    stacked.gates.fill_(7.0)
    assert (bilm.forward_lm.layers[1].weight_recurrent == 7.0).all()


@pytest.mark.usefixtures("device")
def test_stream_in_two_parts_equals_the_whole_stream() -> None:
    bilm = make(2, True)
    types, index = torch.randn(U, D), torch.randint(0, U, (2, 2 * T, B))
    expected = wave_of(bilm, steps=2 * T).forward(types, index)
    half = wave_of(bilm)
    pieces = []
    for piece in (index[:, :T], index[:, T:]):
        pieces.append(half.forward(types, piece.contiguous()).clone())
        half.load_state(*half.state())
    assert torch.allclose(torch.cat(pieces, dim=1), expected, atol=2e-6)


def test_dropout_mask_is_the_same_in_the_backward_pass_and_depends_on_the_seed(
    device: torch.device,
) -> None:
    bilm = make(2, True)
    index = torch.randint(0, U, (2, T, B))
    wave = wave_of(bilm, dropout=0.4)

    def loss(x: Tensor, seed: int) -> Tensor:
        wave.seed.fill_(seed)
        wave.load_state(torch.zeros(4, B, H), torch.zeros(4, B, D))
        return wave.forward(x, index).double().square().sum()

    x = torch.randn(U, D)
    loss(x, 1)
    gradients = StackedWeights.zeros(bilm.config.lstm, device)
    d_x = wave.backward(2 * wave.out, index, U, gradients)
    # Along its own gradient, the loss must change at the rate that the gradient predicts.
    step = 1e-2 * d_x / d_x.norm()
    slope = (loss(x + step, 1) - loss(x - step, 1)) / 2e-2
    assert slope.item() == pytest.approx(d_x.norm().item(), rel=3e-2)
    zeros = (wave.out == 0).float().mean().item()
    assert 0.25 < zeros < 0.55
    assert loss(x, 1) == loss(x, 1)
    assert loss(x, 1) != loss(x, 2)


@pytest.mark.gpu
def test_bf16_is_close_to_float32_and_repeatable() -> None:
    device = torch.device("cuda")
    torch.manual_seed(0)
    bilm = BiLM(BiLMConfig(LstmConfig(512, 128), None, n_words=1)).to(device)
    stacked = StackedWeights.from_bilm(bilm)
    types = torch.randn(300, 128, device=device)
    index = torch.randint(0, 300, (2, 20, 64), device=device)
    direction = torch.randn(2, 20, 64, 128, device=device)
    results = []
    for dtype in (torch.float32, torch.bfloat16, torch.bfloat16):
        wave = Wavefront(bilm.config.lstm, 64, 20, dropout=0.0, dtype=dtype, device=device)
        wave.load_weights(stacked)
        out = wave.forward(types.to(dtype), index).float()
        gradients = StackedWeights.zeros(bilm.config.lstm, device)
        wave.backward(direction.to(dtype), index, 300, gradients)
        results.append([out, *gradients])
    for exact, first, second in zip(*results, strict=True):
        assert (first - exact).norm() / exact.norm() < 1e-2
        assert torch.equal(first, second)
