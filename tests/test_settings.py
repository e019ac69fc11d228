"""Settings: accepted and rejected values, and error messages."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import hypothesis.strategies as st
import pytest
from hypothesis import given

from elmokit.bulk.settings import EmbedSettings
from elmokit.config import BiLMConfig, CharCnnConfig, LstmConfig
from elmokit.errors import ConfigError
from elmokit.settings import (
    Bounds,
    Fraction,
    Positive,
    Settings,
    Size,
    differences,
    validate,
    with_settings,
)
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.registry import TASKS, load_task
from elmokit.train.config import RunConfig, run_preset, with_length


class Inner(Settings):
    size: Size = 4
    rate: Positive = 0.1
    limit: Annotated[float | None, Bounds(gt=0)] = None
    kind: Literal["plain", "fast"] = "plain"
    flag: bool = False


class Outer(Settings):
    inner: Inner = Inner()
    dropout: Fraction = 0.5
    name: str = ""


@pytest.mark.parametrize(
    ("setting", "field"),
    [
        (f"inner.{name}={value}", f"inner.{name}")
        for name, values in {
            "size": ("x", "1.0", "1e3", "true", "0", "-1", "65537", '"4"', "[4]", "null", ""),
            "rate": ("fast", "true", "nan", "NaN", "Infinity", "1e400", "0", "-1", "null", "[1]"),
            "limit": ("0", "false", '"1"', "{}"),
            "kind": ("slow", "1", ""),
            "flag": ("1", "yes", "null", "True"),
        }.items()
        for value in values
    ],
)
def test_invalid_value_is_reported_with_its_field(setting: str, field: str) -> None:
    with pytest.raises(ConfigError, match=f"^Invalid value for {field}: .*. Expected "):
        with_settings(Outer(), [setting])


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ("inner.size=7", {"size": 7}),
        ("inner.rate=1", {"rate": 1.0}),
        ("inner.rate= 2e-3 ", {"rate": 0.002}),
        ("inner.limit=null", {"limit": None}),
        ("inner.limit=3", {"limit": 3.0}),
        ("inner.kind=fast", {"kind": "fast"}),
        ("inner.flag=true", {"flag": True}),
    ],
)
def test_valid_value_changes_only_its_setting(setting: str, expected: dict[str, Any]) -> None:
    before = Outer(name="mine")
    after = with_settings(before, [setting])
    assert after == Outer(dataclasses.replace(before.inner, **expected), name="mine")
    assert [type(x) for x in after.inner.to_dict().values()] == [
        type(x) for x in (Inner().to_dict() | expected).values()
    ]


@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 10_000, "a" * 100_000])
def test_huge_invalid_value_is_reported_in_one_short_line(value: str) -> None:
    with pytest.raises(ConfigError, match=r"inner\.size") as caught:
        with_settings(Outer(), [f"inner.size={value}"])
    assert len(str(caught.value)) < 200
    with pytest.raises(ConfigError):
        with_settings(Outer(), ["name=\ud800"])


def test_strings_are_not_converted() -> None:
    assert with_settings(Outer(), ["name=12"]).name == "12"
    assert with_settings(Outer(), ["name=a=b"]).name == "a=b"


def test_all_problems_are_reported_together() -> None:
    settings = ["inner.size=x", "inner.rate=0", "dropout=1", "color=red", "nothing", "inner=3"]
    with pytest.raises(ConfigError) as caught:
        with_settings(Outer(), settings)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(settings)
    for part in ("'x'", "inner.rate", "dropout", "'color'", "'nothing'", "inner.size"):
        assert any(part in line for line in lines)


@pytest.mark.parametrize("name", ["inner.siez=3", "iner.size=3"])
def test_unknown_name_error_contains_a_suggestion(name: str) -> None:
    with pytest.raises(ConfigError, match=r"Did you mean 'inner\.size'"):
        with_settings(Outer(), [name])


def test_all_ways_to_create_settings_validate_them() -> None:
    for make in (
        lambda: Inner(size=0),
        lambda: Inner(0),
        lambda: dataclasses.replace(Inner(), size=0),
        lambda: Inner.from_dict({"size": 0}),
        lambda: Outer.from_dict({"inner": {"size": 0}}),
    ):
        with pytest.raises(ConfigError, match=r"Invalid value for (inner\.)?size: 0"):
            make()
    with pytest.raises(dataclasses.FrozenInstanceError):
        Inner().size = 3  # type: ignore[misc]
    with pytest.raises(ConfigError, match="Did you mean 'size'"):
        Inner(siez=3)  # type: ignore[call-arg]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 0.0, True, "1", None])
def test_single_value_is_validated_in_the_same_way(value: Any) -> None:
    assert validate("epochs", 1.5, Positive) == 1.5
    with pytest.raises(ConfigError, match="Invalid value for epochs"):
        validate("epochs", value, Positive)


def test_differences_are_named() -> None:
    other = Outer(Inner(size=5, rate=0.2), dropout=0.1)
    assert differences(Outer(), other) == ["inner.size", "inner.rate", "dropout"]
    assert differences(Outer(), other, ignore=["dropout", "inner.rate"]) == ["inner.size"]


def configurations() -> Iterator[Settings]:
    """Return all named configurations of the package."""
    for name in ("toy", "small", "medium", "original"):
        yield run_preset(name)
        yield run_preset(name).model
    for name in TASKS:
        yield from load_task(name).presets.values()
    yield EmbedSettings(layer="mix", mix=(0.5, 0.25, 0.25), gamma=2.0)


@pytest.mark.parametrize("config", list(configurations()))
def test_settings_survive_json_and_pickle(config: Settings) -> None:
    values = json.loads(json.dumps(config.to_dict()))
    model = type(config.model) if isinstance(config, TaskConfig) else None
    assert type(config).from_dict(values, model) == config
    assert pickle.loads(pickle.dumps(config)) == config
    assert with_settings(config, []) == config


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.data())
def test_any_value_in_a_file_is_accepted_or_rejected_with_an_elmo_error(
    data: st.DataObject,
) -> None:
    config = data.draw(st.sampled_from([*configurations()]))
    values = config.to_dict()
    model = type(config.model) if isinstance(config, TaskConfig) else None
    group = values
    while True:
        key = data.draw(st.sampled_from([*group, "new"]))
        if not isinstance(group.get(key), dict) or data.draw(st.booleans()):
            break
        group = group[key]
    group[key] = data.draw(JSON)
    with contextlib.suppress(ConfigError):
        made = type(config).from_dict(values, model)
        assert all(map(math.isfinite, numbers(made.to_dict())))


def numbers(values: Any) -> Iterator[float]:
    if isinstance(values, dict):
        values = list(values.values())
    if isinstance(values, list | tuple):
        for value in values:
            yield from numbers(value)
    elif isinstance(values, float):
        yield values


@dataclasses.dataclass(frozen=True)
class Plain:
    """A custom task may have a plain dataclass."""

    hidden: int = 16
    words: tuple[str, ...] = ()


def test_plain_dataclass_of_a_custom_task_is_validated() -> None:
    config = TaskConfig(Plain())
    changed = with_settings(config, ["model.hidden=3", 'model.words=["a"]', "elmo.dropout=0"])
    assert changed.model == Plain(3, ("a",))
    for wrong in ("model.hidden=x", "model.hidden=true", "model.hiden=3"):
        with pytest.raises(ConfigError, match=r"model\.hidden"):
            with_settings(config, [wrong])
    values = changed.to_dict()
    values["model"]["hidden"] = "3"
    with pytest.raises(ConfigError, match=r"model\.hidden"):
        TaskConfig.from_dict(values, Plain)


@pytest.mark.parametrize(
    ("group", "field", "value"),
    [
        ("char_cnn", "max_characters_per_token", 10**8),
        ("char_cnn", "filters", [[1, 10**6]]),
        ("char_cnn", "filters", [[1, 1]] * 10**5),
        ("char_cnn", "n_highway", 10**9),
        ("lstm", "dim", 10**9),
        ("lstm", "n_layers", 10**9),
    ],
)
def test_file_cannot_request_unbounded_memory(group: str, field: str, value: Any) -> None:
    values = run_preset("toy").model.to_dict()
    values[group][field] = value
    with pytest.raises(ConfigError, match=rf"{group}\.{field}"):
        BiLMConfig.from_dict(values)


@pytest.mark.parametrize("task", TASKS)
def test_all_tasks_limit_the_hidden_size(task: str) -> None:
    config = next(iter(load_task(task).presets.values()))
    with pytest.raises(ConfigError, match=r"model\.hidden"):
        with_settings(config, ["model.hidden=10000000"])


def test_files_of_earlier_versions_can_be_loaded() -> None:
    """Such files have integers for clips, no lexicon, and lack newer settings."""
    old = {"lstm": {"dim": 16, "projection_dim": 8, "cell_clip": 3, "proj_clip": None}}
    shape = BiLMConfig(LstmConfig(16, 8, proj_clip=None), None, n_words=5)
    assert BiLMConfig.from_dict(old | {"n_words": 5}) == shape
    assert json.dumps(LstmConfig.from_dict(old["lstm"]).cell_clip) == "3"  # in fingerprints
    run = run_preset("toy").to_dict()
    del run["optimizer"]["decay"], run["start"], run["model"]["lexicon"]
    assert RunConfig.from_dict(run) == run_preset("toy")


@pytest.mark.parametrize(
    ("units", "steps"),
    [({}, 400), ({"max_steps": 7}, 7), ({"max_tokens": 641}, 2), ({"epochs": 0.5}, 8)],
)
def test_length_of_a_run_has_three_units(units: dict[str, Any], steps: int) -> None:
    assert with_length(run_preset("toy"), 10_000, **units).max_steps == steps


@pytest.mark.parametrize(
    "units", [{"max_steps": 0}, {"max_tokens": -1}, {"epochs": math.nan}, {"epochs": math.inf}]
)
def test_invalid_length_is_rejected(units: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"Invalid value for {next(iter(units))}"):
        with_length(run_preset("toy"), 10_000, **units)


def test_two_lengths_are_rejected() -> None:
    with pytest.raises(ConfigError, match="epochs"):
        with_length(run_preset("toy"), 10_000, max_steps=3, epochs=1.0)


def test_bundled_models_can_be_loaded(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[1]
    for folder in ("src/elmokit/models/english", "weights/english-original", "tests/models/tiny"):
        values = json.loads((root / folder / "config.json").read_text())["bilm"]
        assert BiLMConfig.from_dict(values).to_dict().keys() == values.keys()


def test_errors_about_several_fields_name_one_of_them() -> None:
    for make, name in (
        (lambda: LstmConfig(dim=4, projection_dim=8), "projection_dim"),
        (lambda: CharCnnConfig(filters=((9, 1),), max_characters_per_token=8), "filters"),
        (lambda: EmbedSettings(layer="mix"), "mix"),
        (lambda: EmbedSettings(gamma=2.0), "gamma"),
        (lambda: EmbedSettings(rows=2), "rows"),
    ):
        with pytest.raises(ConfigError, match=name):
            make()
