"""The alternating highway LSTM, compared with its equations, one step at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from elmokit.tasks.nn.highway import AlternatingLstm, HighwayLstm, _Recurrence

LENGTHS = [7, 1, 4, 7, 3]
HIDDEN = 5


def plain_layer(layer: HighwayLstm, x: Tensor, *, backward: bool, keep: Tensor) -> Tensor:
    """Compute one sentence, (T, D), with the equations; autograd derives the gradients."""
    size = layer.carry.out_features
    h, c = x.new_zeros(size), x.new_zeros(size)
    out: dict[int, Tensor] = {}
    steps = range(len(x))
    for t in reversed(steps) if backward else steps:
        before = layer.read(x[t]) + layer.recur(h)
        o, r, i, f = (torch.sigmoid(part) for part in before[: 4 * size].chunk(4))
        c = f * c + i * torch.tanh(before[4 * size :])
        h = keep * (r * o * torch.tanh(c) + (1 - r) * layer.carry(x[t]))
        out[t] = h
    return torch.stack([out[t] for t in steps])


def plain(model: AlternatingLstm, x: Tensor, lengths: list[int], keeps: list[Tensor]) -> Tensor:
    out = x.new_zeros(*x.shape[:2], HIDDEN)
    for row, length in enumerate(lengths):
        h = x[row, :length]
        for number, layer in enumerate(model.layers):
            assert isinstance(layer, HighwayLstm)
            h = plain_layer(layer, h, backward=number % 2 == 1, keep=keeps[number][row])
        out[row, :length] = h
    return out


def given(n_layers: int, dropout: float = 0.0) -> tuple[AlternatingLstm, Tensor, Tensor]:
    torch.manual_seed(n_layers)
    model = AlternatingLstm(6, HIDDEN, n_layers, dropout=dropout).double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    x = torch.randn(len(LENGTHS), max(LENGTHS), 6, dtype=torch.float64)
    mask = torch.arange(x.shape[1]) < torch.tensor(LENGTHS)[:, None]
    return model, x, mask.unsqueeze(2)


@pytest.mark.parametrize("n_layers", [1, 2, 3])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_values_and_gradients_equal_the_equations(n_layers: int, dropout: float) -> None:
    model, x, mask = given(n_layers, dropout)
    torch.manual_seed(9)
    found = model(x.requires_grad_(), LENGTHS)
    torch.manual_seed(9)
    shape = (len(LENGTHS), HIDDEN)
    keeps = [
        torch.empty(shape, dtype=torch.float64).bernoulli_(1 - dropout) / (1 - dropout)
        if dropout
        else torch.ones(shape, dtype=torch.float64)
        for _ in range(n_layers)
    ]
    expected = plain(model, x, LENGTHS, keeps)
    assert torch.allclose(found * mask, expected, atol=1e-12)
    weights = torch.randn(found.shape, dtype=torch.float64) * mask
    inputs = [x, *model.parameters()]
    for a, b in zip(
        torch.autograd.grad((found * weights).sum(), inputs),
        torch.autograd.grad((expected * weights).sum(), inputs),
        strict=True,
    ):
        assert torch.allclose(a, b, atol=1e-11)


def test_first_layer_equals_numpy() -> None:
    torch.manual_seed(0)
    layer = HighwayLstm(3, 2, dropout=0.0)
    x = torch.randn(4, 1, 3)
    w, b = layer.read.weight.detach().numpy(), layer.read.bias.detach().numpy()
    u, way = layer.recur.weight.detach().numpy(), layer.carry.weight.detach().numpy()
    h = c = np.zeros(2)
    for step, value in zip(layer(x).detach().numpy()[:, 0], x.numpy()[:, 0], strict=True):
        before = w @ value + b + u @ h
        o, r, i, f = (1 / (1 + np.exp(-before[k : k + 2])) for k in (0, 2, 4, 6))
        c = f * c + i * np.tanh(before[8:])
        h = r * o * np.tanh(c) + (1 - r) * (way @ value)
        assert np.allclose(step, h, atol=1e-6)


def test_manual_backward_pass_is_the_derivative() -> None:
    torch.manual_seed(0)
    shapes = [(3, 2, 20), (3, 2, 4), (20, 4)]
    inputs = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes]
    keep = torch.tensor([[2.0, 0.0, 1.0, 1.0]] * 2, dtype=torch.float64)
    for mask in (None, keep):
        assert torch.autograd.gradcheck(_Recurrence.apply, (*inputs, mask))


def test_padding_and_batch_have_no_effect() -> None:
    model, x, mask = given(4)
    together = model(x, LENGTHS)
    noisy = model(torch.where(mask, x, torch.full_like(x, 30.0)), LENGTHS)
    assert torch.equal(together * mask, noisy * mask)
    for row, length in enumerate(LENGTHS):
        alone = model(x[row : row + 1, :length], [length])
        assert torch.allclose(alone[0], together[row, :length], atol=1e-12)
    assert torch.isfinite(model(x, [0] * len(LENGTHS))).all()


def test_dropout_mask_is_shared_by_all_steps_and_only_used_in_training() -> None:
    torch.manual_seed(0)
    model = AlternatingLstm(6, 50, 1, dropout=0.5)
    x = torch.randn(3, 9, 6)
    dropped = model(x, [9] * 3) == 0
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert 0.3 < dropped.float().mean() < 0.7
    assert not torch.equal(dropped[0], dropped[1])
    assert not (model.eval()(x, [9] * 3) == 0).any()


def test_gates_are_initialized_orthonormally_with_an_open_forget_gate() -> None:
    layer = HighwayLstm(12, 8, dropout=0.1)
    for linear in (layer.read, layer.carry, layer.recur):
        for gate in linear.weight.split(8):
            assert torch.allclose(gate @ gate.t(), torch.eye(8), atol=1e-5)
    assert layer.read.bias.tolist() == [0.0] * 24 + [1.0] * 8 + [0.0] * 8


@pytest.mark.gpu
def test_gpu_gives_the_same_values_and_gradients() -> None:
    model, x, mask = given(3)
    found = []
    for device in ("cpu", "cuda"):
        there = model.to(device)
        loss = (there(x.to(device), LENGTHS) * mask.to(device)).square().sum()
        gradients = torch.autograd.grad(loss, list(there.parameters()))
        found.append([loss.detach().cpu(), *(gradient.cpu() for gradient in gradients)])
    for a, b in zip(*found, strict=True):
        assert torch.allclose(a, b, atol=1e-9)
