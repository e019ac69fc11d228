from __future__ import annotations

import pytest
import torch

from elmokit.config import LstmConfig
from elmokit.model.lstm import FORGET_BIAS, LstmLayer, LstmStack, LstmState


def torch_lstm(layer: LstmLayer) -> torch.nn.LSTM:
    """Create torch's LSTM with the same weights; it has no clips and the gate order i, f, j, o."""
    h, d = layer.config.dim, layer.config.projection_dim
    proj_size = d if layer.config.has_projection else 0
    lstm = torch.nn.LSTM(d, h, batch_first=False, proj_size=proj_size)

    def reorder(w: torch.Tensor) -> torch.Tensor:
        i, j, f, o = w.chunk(4)
        return torch.cat([i, f, j, o])

    bias = layer.bias.detach().clone()
    bias[2 * h : 3 * h] += FORGET_BIAS
    with torch.no_grad():
        lstm.weight_ih_l0.copy_(reorder(layer.weight_input))
        lstm.weight_hh_l0.copy_(reorder(layer.weight_recurrent))
        lstm.bias_ih_l0.copy_(reorder(bias))
        lstm.bias_hh_l0.zero_()
        if layer.weight_projection is not None:
            lstm.weight_hr_l0.copy_(layer.weight_projection)
    return lstm


@pytest.mark.parametrize("dim", [6, 16])
def test_layer_without_clips_equals_the_projected_lstm_of_torch(dim: int) -> None:
    torch.manual_seed(0)
    layer = LstmLayer(LstmConfig(dim=dim, projection_dim=6, cell_clip=None, proj_clip=None))
    torch.nn.init.normal_(layer.bias)
    x = torch.randn(9, 4, 6)
    expected, (r, c) = torch_lstm(layer)(x)
    outputs, cell, hidden = layer(x.reshape(36, 6), [4] * 9, torch.zeros(4, dim), torch.zeros(4, 6))
    assert torch.allclose(outputs.view(9, 4, 6), expected, atol=1e-6)
    assert torch.allclose(cell, c[0], atol=1e-6)
    assert torch.allclose(hidden, r[0], atol=1e-6)


def test_clips_bound_the_state() -> None:
    torch.manual_seed(0)
    config = LstmConfig(dim=16, projection_dim=6, cell_clip=0.3, proj_clip=0.2)
    layer = LstmLayer(config)
    with torch.no_grad():
        for p in layer.parameters():
            p.normal_(std=2.0)
    outputs, cell, _ = layer(torch.randn(36, 6), [4] * 9, torch.zeros(4, 16), torch.zeros(4, 6))
    assert cell.abs().max().item() == pytest.approx(0.3)
    assert outputs.abs().max().item() == pytest.approx(0.2)


def test_skip_connection_starts_above_the_first_layer_and_does_not_enter_the_state() -> None:
    torch.manual_seed(0)
    config = LstmConfig(dim=8, projection_dim=4, n_layers=2)
    stack = LstmStack(config)
    x = torch.randn(3, 4)
    state = LstmState.zeros(config, 1, like=x)
    outputs, _, hidden = stack(x, [1, 1, 1], state.cell[0], state.hidden[0])
    plain, _, _ = stack.layers[1](outputs[0], [1, 1, 1], state.cell[0, 1], state.hidden[0, 1])
    assert torch.equal(outputs[1], plain + outputs[0])
    assert torch.equal(hidden[0, 0], outputs[0][-1])
    assert torch.equal(hidden[1, 0], plain[-1])


def test_dropout_applies_only_in_training() -> None:
    stack = LstmStack(LstmConfig(dim=8, projection_dim=4), dropout=0.5)
    x = torch.randn(3, 4)
    zero = LstmState.zeros(stack.config, 1, like=x)
    run = lambda: stack(x, [1, 1, 1], zero.cell[0], zero.hidden[0])[0][-1]  # noqa: E731
    stack.eval()
    assert torch.equal(run(), run())
    stack.train()
    assert not torch.equal(run(), run())
