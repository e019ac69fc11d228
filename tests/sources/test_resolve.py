"""Every way to specify a model is resolved, or the error says what was searched."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import elmokit
from elmokit.errors import ConfigError, ElmoError, WeightsError
from elmokit.sources import modeldir, resolve
from elmokit.sources.resolve import load_parts
from tests.conftest import TINY_MODEL
from tests.sources.models import make_parts, same_bits, write_hdf5


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    modeldir.save(make_parts(), tmp_path / "ours")
    return tmp_path / "ours"


def test_model_directory_or_a_file_in_it(ours: Path) -> None:
    for given in (ours, str(ours), ours / "config.json", ours / "model.safetensors"):
        parts = load_parts(given)
        assert same_bits(parts.bilm, make_parts().bilm)
        assert parts.source == str(given)


def test_path_with_a_tilde(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(ours.parent))
    assert load_parts("~/ours")


def test_weights_are_sufficient_if_options_are_in_the_same_directory(tmp_path: Path) -> None:
    folder = write_hdf5(make_parts(), tmp_path / "old")
    assert load_parts(weights=folder / "weights.hdf5")


def test_bundled_model_is_the_default(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "_MODELS", ours.parent)
    monkeypatch.setattr(resolve, "DEFAULT_MODEL", "ours")
    parts = load_parts()
    assert same_bits(parts.bilm, make_parts().bilm)
    assert parts.source == "ours"


def test_models_of_the_package_and_of_a_checkout_have_names(
    ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve, "_MODELS", ours.parent)
    monkeypatch.setattr(resolve, "_WEIGHTS", tmp_path / "weights")
    shutil.copytree(ours, tmp_path / "weights" / "large")
    for name in ("ours", "large"):
        parts = load_parts(name)
        assert same_bits(parts.bilm, make_parts().bilm)
        assert parts.source == name
    with pytest.raises(WeightsError, match="Did you mean 'large'"):
        load_parts("larg")
    with pytest.raises(WeightsError):
        load_parts("")


def test_package_without_a_model_says_what_to_specify(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolve, "_MODELS", tmp_path)
    with pytest.raises(WeightsError, match=r"Model 'english' not found.*allennlp:original"):
        load_parts()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("our", "Did you mean 'ours'"),
        ("nowhere/at/all", "Model 'nowhere/at/all' not found.*allennlp:small"),
        ("original", "Did you mean 'allennlp:original'"),
        ("allennlp:orignal", "Unknown published model.*Did you mean 'allennlp:original'"),
        ("alennlp:small", "Did you mean 'allennlp:small'"),
        ("", "model name is empty"),
        ("x" * 5000, "cannot be read"),
        ("nul\0byte", "not found"),
    ],
)
def test_missing_model_error_suggests_the_nearest_name(
    ours: Path, given: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ours.parent)
    with pytest.raises(WeightsError, match=message):
        load_parts(given)


@pytest.mark.parametrize("model", [5, ["english"], b"english"])
def test_model_that_is_not_a_name_or_a_path_is_rejected(model: Any) -> None:
    with pytest.raises(ConfigError, match="expected a name or a path, got"):
        elmokit.load(model)
    with pytest.raises(ConfigError, match="expected a name or a path, got"):
        elmokit.load("english", model)


def test_directory_without_a_model_lists_its_contents(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("")
    with pytest.raises(WeightsError, match=r"is not a model: .*directory contains letter\.txt"):
        load_parts(tmp_path)


def test_long_list_of_contents_is_shortened(tmp_path: Path) -> None:
    for number in range(15):
        (tmp_path / f"{number:02}.txt").write_text("")
    with pytest.raises(WeightsError, match=r"contains 00\.txt, .*, 11\.txt and 3 more\.$"):
        load_parts(tmp_path)


@pytest.mark.parametrize("name", ["encoder.pkl", "model.pt", "book.txt", "model.tar.gz"])
def test_other_file_types_are_rejected(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x80\x02anything")
    with pytest.raises(WeightsError):
        load_parts(tmp_path / name)


def test_models_of_other_libraries_are_rejected(ours: Path) -> None:
    (ours / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(ElmoError, match="'format' should be 'elmokit'"):
        load_parts(ours)


def test_weights_option_with_a_complete_model_is_an_error(ours: Path, tmp_path: Path) -> None:
    (tmp_path / "w.hdf5").write_bytes(b"")
    with pytest.raises(WeightsError):
        load_parts(ours, tmp_path / "w.hdf5")
    with pytest.raises(WeightsError):
        load_parts("allennlp:small", tmp_path / "w.hdf5")
    with pytest.raises(WeightsError):
        load_parts(tmp_path / "w.hdf5", ours)


def test_missing_weights_are_named(tmp_path: Path) -> None:
    folder = write_hdf5(make_parts(), tmp_path / "old")
    with pytest.raises(WeightsError, match=r"weight\.hdf5'.* Did you mean 'weights\.hdf5'"):
        load_parts(folder / "options.json", folder / "weight.hdf5")


def test_error_for_a_missing_weight_file_names_only_that_file(tmp_path: Path) -> None:
    folder = write_hdf5(make_parts(), tmp_path / "old")
    with pytest.raises(WeightsError, match=r"weights\.hdf5") as raised:
        load_parts(folder / "options.json", folder / "weight.hdf5")
    assert len(str(raised.value).replace(str(folder), "")) < 100


@pytest.mark.parametrize(
    "name", ["checkpoint", "model.zip", "options.json", "weights.hdf5", "model"]
)
def test_named_pipe_does_not_block(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    for path in (tmp_path, tmp_path / name):
        with pytest.raises(ElmoError):
            load_parts(path)


@pytest.mark.parametrize("name", modeldir.FILES)
def test_named_pipe_in_a_model_directory_does_not_block(ours: Path, name: str) -> None:
    (ours / name).unlink(missing_ok=True)
    os.mkfifo(ours / name)
    with contextlib.suppress(ElmoError):  # or it is skipped, like a model card
        load_parts(ours)


@pytest.mark.parametrize("path", ["a\0b", "\0", "allennlp:a\0b", "hf://a\0b/c"])
def test_nul_in_a_path_is_an_error(path: str) -> None:
    for arguments in ((path,), (TINY_MODEL, path)):
        with pytest.raises(ElmoError):
            load_parts(*arguments)


@pytest.mark.parametrize("path", ["~nosuchuser/x", "~\\0", "x" * 5000, "http://[::1/x"])
def test_an_invalid_path_is_an_error(path: str) -> None:
    with pytest.raises(ElmoError):
        elmokit.load(path)
    with pytest.raises(ElmoError):
        load_parts("x", vocab=path)
