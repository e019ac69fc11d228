"""ELMoForManyLangs models: malicious pickles, mismatched shapes and tensors."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmokit
from elmokit.convert.torch_pickle import read_state_dict
from elmokit.errors import ConfigError, ElmoError, ElmoWarning, WeightsError
from elmokit.sources.resolve import load_parts
from tests.convert.manylangs.reference import reference
from tests.convert.manylangs.tiny import SENTENCES, SHAPE, shape_with, write


class Evil:
    """A pickle that would create a file when it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("name", ["token_embedder.pkl", "encoder.pkl"])
@pytest.mark.parametrize("kind", ["zip", "stream", "bare", "among tensors"])
def test_malicious_pickle_is_rejected_without_executing_it(
    name: str, kind: str, tmp_path: Path
) -> None:
    folder, mark = write(tmp_path / "m"), tmp_path / "harmed"
    if kind == "bare":
        (folder / name).write_bytes(pickle.dumps(Evil(mark), protocol=2))
    else:
        held: dict[str, Any] = {"x": Evil(mark)}
        if kind == "among tensors":
            held = {**torch.load(folder / name, weights_only=True), "x": Evil(mark)}
        torch.save(held, folder / name, _use_new_zipfile_serialization=kind != "stream")
    with pytest.raises(WeightsError, match=rf"{name} was rejected: .*can execute arbitrary code"):
        elmokit.load(folder)
    assert not mark.exists()
    if kind != "bare":  # verify that it is really malicious
        torch.load(folder / name, weights_only=False)
        assert mark.exists()


def test_error_does_not_suggest_loading_the_file_unsafely(tmp_path: Path) -> None:
    torch.save({"x": Evil(tmp_path / "harmed")}, tmp_path / "x.pkl")
    with pytest.raises(WeightsError, match=r"refers to posix\.system") as caught:
        read_state_dict(tmp_path / "x.pkl")
    assert "weights_only" not in str(caught.value)


@pytest.mark.parametrize("old", [True, False])
def test_truncated_pickles_are_errors(old: bool, tmp_path: Path) -> None:
    path = tmp_path / "x.pkl"
    torch.save({"a": torch.ones(3, 4)}, path, _use_new_zipfile_serialization=not old)
    raw = path.read_bytes()
    for size in (0, 1, 2, 17, 100, len(raw) // 2, len(raw) - 1):
        path.write_bytes(raw[:size])
        with pytest.raises(WeightsError, match=r"x\.pkl"):
            read_state_dict(path)


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ([1, 2], "of type list"),
        ({"a": 1}, "of type int"),
        ({3: torch.ones(1)}, "of type Tensor"),
        ({"a": torch.ones(1).expand(10**12)}, "'a' .* larger than its stored data"),
        ({"a": torch.ones(3).to_sparse()}, "'a' .* is not supported"),
        ({"a": torch.ones(3, device="meta")}, "'a' .* is not supported"),
    ],
)
def test_files_that_are_not_state_dicts_are_rejected(held: Any, said: str, tmp_path: Path) -> None:
    torch.save(held, tmp_path / "x.pkl")
    with pytest.raises(WeightsError, match=said):
        read_state_dict(tmp_path / "x.pkl")


def test_weights_saved_on_a_gpu_can_be_read_without_one(tmp_path: Path) -> None:
    """As in the published models, where the stream names the device of each storage."""
    path = tmp_path / "x.pkl"
    torch.save({"a": torch.arange(5.0)}, path, _use_new_zipfile_serialization=False)
    raw = path.read_bytes()
    there, here = (b"X" + len(name).to_bytes(4, "little") + name for name in (b"cuda:3", b"cpu"))
    assert raw.count(here) == 1
    path.write_bytes(raw.replace(here, there))
    assert np.array_equal(read_state_dict(path)["a"], np.arange(5.0))


# --------------------------------------------------------------------------------- shapes and files


def test_shape_is_inferred_from_tensors_without_its_file(tmp_path: Path) -> None:
    published = shape_with(cell_clip=3, proj_clip=3, max_characters_per_token=50)
    folder = write(tmp_path / "m", published, config_path="/home/somebody/cnn_50.json")
    (folder / "cnn_tiny.json").unlink()
    with pytest.warns(
        ElmoWarning, match=r"/home/somebody/cnn_50\.json.*relu, at most 50.*clipping at 3"
    ):
        elmo = elmokit.load(folder)
    found = elmo.embed([SENTENCES[1]])[0].layers
    assert np.abs(found - reference(SENTENCES[1], published)).max() < 1e-6


@pytest.mark.parametrize("place", ["cnn_tiny.json", "configs/cnn_tiny.json"])
def test_shape_file_is_found(place: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "m", config_path="/home/somebody/cnn_tiny.json")
    (folder / "configs").mkdir()
    shutil.move(folder / "cnn_tiny.json", folder / place)
    assert load_parts(folder).bilm.config.lstm.cell_clip == 0.3


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (
            {"name": "lstm"},
            ConfigError,
            r"unsupported token_embedder\.name 'lstm'\. Expected 'cnn'",
        ),
        ({"activation": "gelu"}, ConfigError, r"lexicon\.activation: 'gelu'"),
        ({"max_characters_per_token": 2}, ConfigError, r"lexicon\.max_characters_per_token: 2"),
        ({"cell_clip": "three"}, ConfigError, r"lstm\.cell_clip: 'three'"),
    ],
)
def test_mismatched_shape_is_rejected(
    change: dict[str, Any], error: type[ElmoError], said: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "m")
    (folder / "cnn_tiny.json").write_text(json.dumps(shape_with(**change)))
    with pytest.raises(error, match=said):
        load_parts(folder)


def test_missing_key_is_reported(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    shape = shape_with()
    shape["encoder"]["cel_clip"] = shape["encoder"].pop("cell_clip")
    (folder / "cnn_tiny.json").write_text(json.dumps(shape))
    with pytest.raises(ConfigError, match=r"'encoder\.cell_clip' is missing.*mean 'cel_clip'"):
        load_parts(folder)


@pytest.mark.parametrize(
    ("name", "tensor", "value", "said"),
    [
        ("encoder", "backward_layer_1.state_projection.weight", None, "has no tensor 'backward_la"),
        ("encoder", "forward_layer_0.state_linearity.bias", torch.ones(39), r"\[39\].*\[40\]"),
        (
            "encoder",
            "forward_layer_9.x",
            torch.ones(1),
            "unexpected tensors: forward_layer_9",
        ),
        (
            "token_embedder",
            "projection.bias",
            torch.ones(6).long(),
            "type int64; expected a floating-point type",
        ),
        ("token_embedder", "projection.bias", torch.full((6,), torch.nan), "contains NaN"),
        ("token_embedder", "convolutions.1.bias", torch.ones(3), r"convolutions\.1\.bias.*\[4\]"),
    ],
)
def test_mismatched_tensors_are_named(
    name: str, tensor: str, value: torch.Tensor | None, said: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "m")
    state = torch.load(folder / f"{name}.pkl", weights_only=True)
    if value is None:
        del state[tensor]
    else:
        state[tensor] = value
    torch.save(state, folder / f"{name}.pkl")
    with pytest.raises(WeightsError, match=said):
        load_parts(folder)


def test_separate_vocabulary_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("a\n")
    with pytest.raises(WeightsError, match="its own vocabulary"):
        load_parts(write(tmp_path / "m"), vocab=tmp_path / "vocab.txt")


@pytest.mark.parametrize("relative", [True, False])
def test_config_path_cannot_point_outside_the_directory(relative: bool, tmp_path: Path) -> None:
    outside = tmp_path / "other.json"
    path = "../other.json" if relative else str(outside)
    folder = write(tmp_path / "m", config_path=path)
    shutil.move(folder / "cnn_tiny.json", outside)
    with pytest.warns(ElmoWarning, match="does not contain the architecture file"):
        assert load_parts(folder).bilm.config.lstm.cell_clip == 3.0


def test_a_file_that_would_fill_the_memory_is_rejected(tmp_path: Path) -> None:
    class Huge:
        def __reduce__(self) -> Any:
            return bytearray, (10**12,)

    path = tmp_path / "x.pkl"
    for zipped in (True, False):
        torch.save(Huge(), path, _use_new_zipfile_serialization=zipped)
        with pytest.raises(WeightsError, match="objects other than stored tensors"):
            read_state_dict(path)
    torch.save({"a": torch.zeros(10**6)}, path)
    with zipfile.ZipFile(path) as stored, zipfile.ZipFile(tmp_path / "y.pkl", "w") as archive:
        for entry in stored.infolist():
            archive.writestr(entry.filename, stored.read(entry), zipfile.ZIP_DEFLATED)
    with pytest.raises(WeightsError, match=r"its uncompressed size is 4,\d+,\d+ bytes"):
        read_state_dict(tmp_path / "y.pkl")


def test_an_index_of_many_digits_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "model", SHAPE)
    with (tmp_path / "model" / "char.dic").open("a") as file:
        file.write("x\t" + "9" * 5000 + "\n")
    with pytest.raises(WeightsError, match=r"Invalid line in .*char\.dic"):
        load_parts(tmp_path / "model")
