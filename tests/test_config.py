from __future__ import annotations

from typing import Any

import pytest

from elmokit.config import BiLMConfig
from elmokit.errors import ConfigError
from elmokit.presets import PRESETS, preset


@pytest.mark.parametrize("name", PRESETS)
def test_config_round_trip_through_json(name: str) -> None:
    import json

    config = preset(name)
    assert BiLMConfig.from_dict(json.loads(json.dumps(config.to_dict()))) == config


def test_all_problems_are_reported_together() -> None:
    values = preset("toy").to_dict()
    values["lstm"] |= {"dim": 0, "cell_clip": -1.0}
    values["char_cnn"]["n_highway"] = -1
    with pytest.raises(ConfigError, match=r"(?s)lstm\.dim.*cell_clip.*n_highway"):
        BiLMConfig.from_dict(values)


def test_unknown_key_error_suggests_the_nearest_name() -> None:
    values = preset("toy").to_dict()
    values["lstm"]["projecton_dim"] = values["lstm"].pop("projection_dim")
    with pytest.raises(ConfigError, match=r"projecton_dim.*Did you mean 'lstm.projection_dim'"):
        BiLMConfig.from_dict(values)


@pytest.mark.parametrize("filters", [5, [5], [["a", 1]], [[1, 2, 3]], [], None, [[1, 2.5]]])
def test_invalid_filters_are_rejected(filters: object) -> None:
    values = preset("toy").to_dict()
    values["char_cnn"]["filters"] = filters
    with pytest.raises(ConfigError, match="filters"):
        BiLMConfig.from_dict(values)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"lstm": {"dim": 4, "projection_dim": 8}}, "lstm.projection_dim"),
        ({"char_cnn": None}, "input"),
        ({"n_words": 5}, "input"),
        ({"char_cnn": {"max_characters_per_token": 5}}, "char_cnn.filters"),
        ({"char_cnn": {"activation": "gelu"}}, "char_cnn.activation"),
    ],
)
def test_invalid_shapes_are_rejected(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError, match=f"Invalid value for {field}"):
        BiLMConfig.from_dict(preset("original").to_dict() | change)


def test_derived_sizes() -> None:
    config = preset("original")
    assert config.n_layers == 3
    assert config.output_dim == 1024
    assert config.char_cnn is not None
    assert config.char_cnn.n_filters == 2048


def test_unknown_preset_error_suggests_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="'medium'"):
        preset("mediun")


@pytest.mark.parametrize(
    "cnn",
    [
        {"max_characters_per_token": 10**8},
        {"filters": [[1, 10**6]]},
        {"filters": [[1, 60_000], [2, 60_000]]},
        {"n_highway": 10**6},
        {"embedding_dim": 10**9},
    ],
)
def test_sizes_are_limited_before_anything_is_allocated(cnn: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        BiLMConfig.from_dict({"lstm": {}, "char_cnn": cnn})
