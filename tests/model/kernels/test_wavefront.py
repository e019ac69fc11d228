"""The wavefront against the plain stacks, forward and backward, restarts and states included."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from elmokit.config import LstmConfig
from elmokit.model.lstm import LstmStack

pytest.importorskip("triton", reason="the fast kernels need Triton (Linux)")

from elmokit.model.kernels.wavefront import StackedWeights, Wavefront, read_streams

B, T, U, H, D = 5, 4, 7, 12, 8
CPU = torch.device("cpu")


def make(n_layers: int, skip: bool) -> tuple[LstmStack, LstmStack]:
    torch.manual_seed(0)
    # Clips so tight that they are reached all the time.
    config = LstmConfig(H, D, n_layers, 0.5, 0.4, skip)
    stacks = LstmStack(config), LstmStack(config)
    for stack in stacks:
        for p in stack.parameters():
            p.data.mul_(2.0).add_(torch.randn_like(p), alpha=0.2)
    return stacks


def plain(
    stacks: tuple[LstmStack, LstmStack], x: Tensor, starts: Tensor, cell: Tensor, hidden: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Token by token with the plain modules; x (2, T, B, D), states (G, B, ...)."""
    n_layers = stacks[0].config.n_layers
    tops, cells, hiddens = [], [], []
    for d, stack in enumerate(stacks):
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
    assert len(cells[0]) == n_layers
    return torch.stack(tops), interleave(cells), interleave(hiddens)


@pytest.mark.parametrize(("n_layers", "skip"), [(1, False), (2, True), (2, False), (3, True)])
def test_outputs_states_and_gradients_equal_the_plain_stacks(n_layers: int, skip: bool) -> None:
    stacks = make(n_layers, skip)
    parameters = [p for stack in stacks for p in stack.parameters()]
    types = torch.randn(U, D, requires_grad=True)
    index = torch.randint(0, U, (2, T, B))
    starts = torch.rand(2, T, B) < 0.25
    cell = torch.randn(2 * n_layers, B, H).clamp(-0.5, 0.5)
    hidden = torch.randn(2 * n_layers, B, D).clamp(-0.4, 0.4)
    direction = torch.randn(2, T, B, D)

    wave = Wavefront(stacks[0].config, B, T, dropout=0.0, dtype=torch.float32, device=CPU)
    wave.starts.copy_(starts)
    wave.load_state(cell, hidden)
    fast = read_streams(wave, types, index, StackedWeights.of(*stacks))
    fast.backward(direction)
    gradients = [p.grad.clone() for p in [types, *parameters] if p.grad is not None]
    for p in [types, *parameters]:
        p.grad = None

    slow, last_cell, last_hidden = plain(stacks, types[index], starts, cell, hidden)
    slow.backward(direction)
    assert torch.allclose(fast, slow, atol=2e-6)
    for found, expected in zip(wave.state(), (last_cell, last_hidden), strict=True):
        assert torch.allclose(found, expected, atol=2e-6)
    assert len(gradients) == len(parameters) + 1
    for found, p in zip(gradients, [types, *parameters], strict=True):
        assert p.grad is not None
        assert torch.allclose(found, p.grad, atol=2e-5)


def test_a_stream_read_in_two_pieces_is_read_whole() -> None:
    stacks = make(2, True)
    types, index = torch.randn(U, D), torch.randint(0, U, (2, 2 * T, B))
    weights = StackedWeights.of(*stacks)
    whole = Wavefront(stacks[0].config, B, 2 * T, dropout=0.0, dtype=torch.float32, device=CPU)
    expected = read_streams(whole, types, index, weights)
    half = Wavefront(stacks[0].config, B, T, dropout=0.0, dtype=torch.float32, device=CPU)
    pieces = []
    for piece in (index[:, :T], index[:, T:]):
        pieces.append(read_streams(half, types, piece.contiguous(), weights))
        half.load_state(*half.state())
    assert torch.allclose(torch.cat(pieces, dim=1), expected, atol=2e-6)


def test_dropout_is_the_same_for_the_gradient_and_changes_with_the_seed() -> None:
    stacks = make(2, True)
    types = torch.randn(U, D)
    index = torch.randint(0, U, (2, T, B))
    wave = Wavefront(stacks[0].config, B, T, dropout=0.4, dtype=torch.float64, device=CPU)
    weights = StackedWeights.of(*stacks)

    def loss(x: Tensor, seed: int) -> Tensor:
        wave.seed.fill_(seed)
        wave.load_state(torch.zeros(4, B, H), torch.zeros(4, B, D))
        return read_streams(wave, x, index, weights).double().square().sum()

    x = types.double().requires_grad_()
    loss(x, 1).backward()
    assert x.grad is not None
    # Along its own gradient the loss must change as fast as the gradient says.
    with torch.no_grad():
        step = 1e-3 * x.grad / x.grad.norm()
        slope = (loss(x + step, 1) - loss(x - step, 1)) / 2e-3
        assert slope.item() == pytest.approx(x.grad.norm().item(), rel=2e-2)
        zeros = (read_streams(wave, x, index, weights) == 0).float().mean().item()
        assert 0.25 < zeros < 0.55
        assert loss(x, 1) == loss(x, 1)
        assert loss(x, 1) != loss(x, 2)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_bf16_graphs_are_near_float32_and_repeatable() -> None:
    device = torch.device("cuda")
    torch.manual_seed(0)
    config = LstmConfig(512, 128)
    stacks = LstmStack(config).to(device), LstmStack(config).to(device)
    types = torch.randn(300, 128, device=device)
    index = torch.randint(0, 300, (2, 20, 64), device=device)
    direction = torch.randn(2, 20, 64, 128, device=device)
    results = []
    for dtype, graphs in (
        (torch.float32, False),
        (torch.bfloat16, True),
        (torch.bfloat16, True),
        (torch.bfloat16, False),
    ):
        wave = Wavefront(config, 64, 20, dropout=0.0, dtype=dtype, device=device, graphs=graphs)
        weights = [w.detach().requires_grad_() for w in StackedWeights.of(*stacks)]
        out = read_streams(wave, types.to(dtype), index, StackedWeights(*weights))
        out.backward(direction.to(dtype))
        results.append([out.detach().float(), *(w.grad for w in weights)])
    for exact, first, second, eager in zip(*results, strict=True):
        assert (first - exact).norm() / exact.norm() < 1e-2
        assert torch.equal(first, second)
        assert torch.equal(first, eager)
