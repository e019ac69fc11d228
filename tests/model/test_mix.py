from __future__ import annotations

import numpy as np
import pytest
import torch

from elmokit.errors import ConfigError, ElmoWarning
from elmokit.model.mix import ScalarMix

LAYERS = torch.randn(3, 2, 4, 6, generator=torch.Generator().manual_seed(0))
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()


@pytest.mark.parametrize(("w", "gamma"), [([0.1, 0.3, 0.5], 1.1), ([0.2, 0.4, 0.6], 0.88)])
def test_mixes_of_bilm_tfs_tests(w: list[float], gamma: float) -> None:
    mix = ScalarMix(3, w=w, gamma=gamma)
    s = np.exp(w) / np.exp(w).sum()
    expected = gamma * sum(s_j * h for s_j, h in zip(s, LAYERS.numpy(), strict=True))
    np.testing.assert_allclose(mix(LAYERS).detach(), expected, atol=1e-6)


def test_new_mix_is_the_average() -> None:
    assert torch.allclose(ScalarMix(3)(LAYERS), LAYERS.mean(dim=0), atol=1e-6)


def test_normalized_weights_are_used_directly() -> None:
    mix = ScalarMix(3, s=[0.0, 0.25, 0.75])
    assert torch.allclose(mix(LAYERS), 0.25 * LAYERS[1] + 0.75 * LAYERS[2], atol=1e-6)
    assert not any(p.requires_grad for p in mix.parameters())


@pytest.mark.parametrize(
    "weights", [{"s": [1.0, 2.0, 3.0]}, {"s": [1.0]}, {"w": [1.0, 2.0]}, {"s": [1], "w": [1]}]
)
def test_invalid_weights_are_rejected(weights: dict[str, list[float]]) -> None:
    with pytest.raises(ConfigError):
        ScalarMix(3, **weights)


def test_top_only_is_gamma_times_the_last_layer() -> None:
    assert torch.allclose(ScalarMix(3, gamma=2.0, top_only=True)(LAYERS), 2.0 * LAYERS[-1])


def test_token_norm_does_not_depend_on_the_batch() -> None:
    mix = ScalarMix(3, layer_norm=True)
    assert torch.allclose(mix(LAYERS, MASK)[0], mix(LAYERS[:, :1], MASK[:1])[0], atol=1e-6)
    normed = ScalarMix(1, layer_norm="token")(LAYERS[:1])
    assert torch.allclose(normed.mean(dim=-1), torch.zeros(2, 4), atol=1e-6)
    assert torch.allclose(normed.var(dim=-1, unbiased=False), torch.ones(2, 4), atol=1e-3)


def test_batch_norm_of_allennlp_uses_the_unmasked_batch_and_warns() -> None:
    with pytest.warns(ElmoWarning, match="batch"):
        mix = ScalarMix(1, layer_norm="batch")
    values = LAYERS[0][MASK]
    expected = (LAYERS[0] - values.mean()) / values.std(unbiased=False)
    assert torch.allclose(mix(LAYERS[:1], MASK), expected, atol=1e-5)


def test_penalty_is_lambda_times_the_squared_weights() -> None:
    mix = ScalarMix(2)
    with torch.no_grad():
        mix.w.copy_(torch.tensor([1.0, 2.0]))
    assert mix.penalty(0.1).item() == pytest.approx(0.5)
    mix.penalty(0.1).backward()
    assert mix.w.grad is not None


def test_wrong_number_of_layers_is_reported() -> None:
    with pytest.raises(ConfigError, match="expected 3, one per weight of the mix; got 2"):
        ScalarMix(3)(LAYERS[:2])
