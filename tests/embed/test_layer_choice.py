"""Layer choices have the same meaning everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from elmokit.embed.layer_choice import ALL_AND_AVERAGE, LayerChoice, check_layer
from elmokit.errors import ConfigError

LAYERS = np.random.default_rng(0).normal(size=(3, 4, 6)).astype(np.float32)
EXPECTED = "expected 0 to 2, top, average, concat, mix or all"


@pytest.mark.parametrize(
    ("given", "label", "expected"),
    [
        ({"layer": 1}, "layer 1", LAYERS[1]),
        ({"layer": "1"}, "layer 1", LAYERS[1]),
        ({"layer": "top"}, "layer 2", LAYERS[2]),
        ({"layer": "average"}, "average", LAYERS.mean(axis=0)),
        ({"layer": "concat"}, "concat", np.concatenate(list(LAYERS), axis=1)),
        ({"layer": "all"}, "all", LAYERS),
        (
            {"layer": "mix", "mix": [0.5, -1, 0], "gamma": 2.0},
            "mix",
            2 * (0.5 * LAYERS[0] - LAYERS[1]),
        ),
    ],
)
def test_each_choice_gives_the_expected_vectors(
    given: dict[str, Any], label: str, expected: Any
) -> None:
    choice = LayerChoice.parse(n_layers=3, **given)
    assert choice.label == label
    found = choice.apply(LAYERS)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    by_torch = choice.apply(torch.from_numpy(LAYERS))
    np.testing.assert_allclose(by_torch.numpy(), expected, atol=1e-6)
    by_token = found.transpose(1, 0, 2) if label == "all" else found
    assert by_token.shape == (4, *choice.shape(6))
    assert by_token.shape[-1] == choice.dim(6)
    assert LayerChoice.parse(n_layers=3, **choice.to_json()) == choice


@pytest.mark.parametrize(
    "layer", ["3", 3, -1, "-1", "bottom", "", "\N{SUPERSCRIPT TWO}", 1.0, True, None, "9" * 20]
)
def test_errors_for_invalid_layers_list_the_valid_ones(layer: Any) -> None:
    with pytest.raises(ConfigError, match=EXPECTED):
        LayerChoice.parse(layer, 3)
    with pytest.raises(ConfigError, match=EXPECTED):
        LayerChoice.parse_all(["top", layer], 3)


def test_only_valid_choices_are_listed() -> None:
    with pytest.raises(ConfigError, match=r"'all': expected 0 to 2, top, average, concat or mix\."):
        LayerChoice.parse("all", 3, allow_all=False)
    with pytest.raises(ConfigError, match="expected a layer number, top"):
        check_layer("last")  # without a model
    assert check_layer("07") == "7"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"layer": "mix"}, "requires mix="),
        ({"layer": "top", "mix": [1, 0, 0]}, r"mix=\[1, 0, 0\] requires"),
        ({"layer": "top", "gamma": 2.0}, "gamma=2.0 requires"),
        ({"layer": "mix", "mix": [1, 0]}, "3 finite weights"),
        ({"layer": "mix", "mix": [1, 0, float("nan")]}, "3 finite weights"),
        ({"layer": "mix", "mix": [1, 0, 0], "gamma": float("inf")}, "gamma: inf"),
        ({"layer": "mix", "mix": [0, 0, 0]}, "all weights are 0"),
    ],
)
def test_weights_are_only_accepted_with_a_mix(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        LayerChoice.parse(n_layers=3, **given)
    with pytest.raises(ConfigError, match=named):
        LayerChoice.parse_all(n_layers=3, **given)


def test_several_choices_give_one_vector_each_without_duplicates() -> None:
    def labels(layer: Any, **mix: Any) -> list[str]:
        return [choice.label for choice in LayerChoice.parse_all(layer, 3, **mix)]

    assert labels(ALL_AND_AVERAGE) == ["layer 0", "layer 1", "layer 2", "average"]
    assert labels("all") == ["layer 0", "layer 1", "layer 2"]
    assert labels(["top", 2, "all"]) == ["layer 2", "layer 0", "layer 1"]
    assert labels([0, "mix", "concat"], mix=[1, 1, 1]) == ["layer 0", "mix", "concat"]
    own = LayerChoice.parse("mix", 3, [0, 1, 0])
    assert labels([own, "average"]) == ["mix", "average"]
    with pytest.raises(ConfigError, match=r"Invalid layer \[\]"):
        labels([])
