"""Checkpoints of bilm-tf: other shapes, damaged and mismatched files."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import elmokit
from elmokit.cli.main import app
from elmokit.convert.tf_bundle import read_index
from elmokit.errors import ConfigError, ElmoError, ElmoWarning, WeightsError
from elmokit.sources.resolve import load_parts
from tests.convert.bundles import MAGIC, block, varint, write_bundle
from tests.convert.tensorflow_checkpoint import (
    FOLDER,
    OPTIONS,
    PREFIX,
    VARIABLES,
    VERSE,
    copied,
    rewritten,
    run,
)
from tests.sources.models import same_bits


def test_shards_and_other_dtypes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {
        "a": rng.normal(size=(3, 4)).astype(np.float32),
        "b": rng.normal(size=(2,)),
        "c/d": np.arange(5, dtype=np.int64),
        "c/e": np.array(7, dtype=np.int32),
        "f": np.zeros((0, 3), dtype=np.float32),
        "g": rng.normal(size=5000).astype(np.float16),
    }
    stored = read_index(write_bundle(tmp_path / "x", tensors, shards=3))
    assert len({tensor.shard for tensor in stored.values()}) == 3
    for name, value in tensors.items():
        assert np.array_equal(stored[name], value)
        assert np.asarray(stored[name]).dtype == value.dtype


def test_single_layer_has_no_numbered_scope(tmp_path: Path) -> None:
    tensors = {
        name.replace("/multi_rnn_cell/cell_0", ""): value
        for name, value in VARIABLES.items()
        if "/cell_1/" not in name
    }
    prefix = rewritten(tmp_path / "x", tensors, lstm=OPTIONS["lstm"] | {"n_layers": 1})
    parts = load_parts(prefix)
    assert parts.bilm.config.lstm.n_layers == 1
    assert parts.accumulators is not None


@pytest.mark.parametrize("shared", [True, False])
def test_word_input_model(shared: bool, tmp_path: Path) -> None:
    tensors = {n: v for n, v in VARIABLES.items() if "CNN" not in n and "char" not in n}
    rng = np.random.default_rng(0)
    tensors["lm/embedding"] = rng.normal(size=(12, 3)).astype(np.float32)
    tensors["lm/embedding/Adagrad"] = np.ones((12, 3), np.float32)
    if shared:
        del tensors["lm/softmax/W"], tensors["lm/softmax/W/Adagrad"]
    prefix = rewritten(tmp_path / "x", tensors, share_embedding_softmax=shared)
    values = json.loads((prefix.parent / "options.json").read_text())
    del values["char_cnn"]
    (prefix.parent / "options.json").write_text(json.dumps(values))
    with pytest.raises(WeightsError, match=r"12 word embeddings"):
        load_parts(prefix)
    parts = load_parts(prefix, vocab=FOLDER / "vocab.txt")
    assert parts.head is not None
    expected = tensors["lm/embedding"] if shared else tensors["lm/softmax/W"]
    assert np.array_equal(parts.head.weight.detach().numpy(), expected)


def test_unused_variables_are_reported(tmp_path: Path) -> None:
    tensors = VARIABLES | {"lm/extra": np.zeros(3, np.float32)}
    prefix = rewritten(tmp_path / "x", tensors)
    with pytest.warns(ElmoWarning, match="lm/extra"):
        load_parts(prefix)


def test_missing_accumulators_give_a_warning(tmp_path: Path) -> None:
    tensors = dict(VARIABLES)
    del tensors["lm/softmax/b/Adagrad"]
    prefix = rewritten(tmp_path / "x", tensors)
    with pytest.warns(ElmoWarning, match="does not contain the Adagrad accumulators lm/softmax/b"):
        assert load_parts(prefix).accumulators is None


def test_checkpoint_without_head_and_accumulators_has_only_weights(tmp_path: Path) -> None:
    bare = {n: v for n, v in VARIABLES.items() if "Adagrad" not in n and "softmax" not in n}
    parts = load_parts(rewritten(tmp_path / "x", bare))
    assert parts.head is None
    assert parts.accumulators is None


def test_specials_at_other_positions_are_moved_to_the_front(tmp_path: Path) -> None:
    """A vocabulary in the tests of bilm-tf starts with </S>."""
    order = [1, 0, 2, *range(3, 12)]
    words = (FOLDER / "vocab.txt").read_text().splitlines()
    tensors = dict(VARIABLES)
    for name in ("lm/softmax/W", "lm/softmax/b", "lm/softmax/W/Adagrad", "lm/softmax/b/Adagrad"):
        tensors[name] = VARIABLES[name][order]
    prefix = rewritten(tmp_path / "x", tensors)
    (prefix.parent / "vocab.txt").write_text("".join(f"{words[place]}\n" for place in order))
    one, two = load_parts(FOLDER), load_parts(prefix)
    assert one.vocabulary is not None
    assert two.vocabulary is not None
    assert one.vocabulary.words == two.vocabulary.words
    assert one.head is not None
    assert two.head is not None
    assert same_bits(one.head, two.head)
    assert one.accumulators is not None
    assert two.accumulators is not None
    assert torch.equal(one.accumulators["head.weight"], two.accumulators["head.weight"])
    score = elmokit.load(prefix).score([VERSE])[0]
    assert score.perplexity == pytest.approx(elmokit.load(FOLDER).score([VERSE])[0].perplexity)


# ------------------------------------------------------------------------------------ invalid input


def test_hdf5_in_the_same_directory_takes_precedence(tmp_path: Path) -> None:
    folder = copied(tmp_path / "x")
    run(app, ["convert", str(FOLDER), str(tmp_path / "hdf5"), "--to", "hdf5"])
    shutil.copy(tmp_path / "hdf5" / "weights.hdf5", folder)
    assert load_parts(folder).head is None
    assert load_parts(folder / "checkpoint").head is not None


def test_missing_files_are_named(tmp_path: Path) -> None:
    folder = copied(tmp_path / "x")
    (folder / "model.ckpt-12.data-00000-of-00001").unlink()
    with pytest.raises(
        WeightsError, match=r"model\.ckpt-12\.data-00000-of-00001.*missing.*Copy it"
    ):
        load_parts(folder)
    (folder / "options.json").unlink()
    with pytest.raises(WeightsError, match=r"options\.json does not exist.*Copy it"):
        load_parts(folder)
    (folder / "model.ckpt-12.index").unlink()
    with pytest.raises(WeightsError, match=r"No checkpoint model\.ckpt-12\.index found in"):
        load_parts(folder)


def test_newest_of_several_checkpoints_is_used_or_a_choice_required(tmp_path: Path) -> None:
    folder = copied(tmp_path / "x")
    for path in list(folder.glob("model.ckpt-12.*")):
        shutil.copy(path, folder / path.name.replace("-12.", "-7."))
    # For a path from another machine in the file, only the name counts.
    (folder / "checkpoint").write_text('model_checkpoint_path: "/nowhere/model.ckpt-7"\n')
    assert "model.ckpt-7.index" in [file.name for file in load_parts(folder).files]
    (folder / "checkpoint").unlink()
    with pytest.raises(WeightsError, match=r"several checkpoints.*ckpt-12\.index, .*ckpt-7\.index"):
        load_parts(folder)


def test_truncated_index_is_an_error(tmp_path: Path) -> None:
    raw = PREFIX.with_name(PREFIX.name + ".index").read_bytes()
    index = tmp_path / "x.index"
    for size in (*range(0, 60), *range(60, len(raw), 97)):
        index.write_bytes(raw[:size])
        with pytest.raises(WeightsError, match=r"x\.index cannot be read as the index"):
            read_index(tmp_path / "x")


@pytest.mark.filterwarnings("ignore::elmokit.errors.ElmoWarning")
def test_changed_byte_of_the_index_is_accepted_or_an_error(tmp_path: Path) -> None:
    folder = copied(tmp_path / "x")
    index = folder / "model.ckpt-12.index"
    raw = index.read_bytes()
    for at in range(0, len(raw), 31):
        index.write_bytes(raw[:at] + bytes([raw[at] ^ 0x41]) + raw[at + 1 :])
        with contextlib.suppress(ElmoError):
            load_parts(folder)


def test_truncated_values_are_an_error(tmp_path: Path) -> None:
    folder = copied(tmp_path / "x")
    data = folder / "model.ckpt-12.data-00000-of-00001"
    data.write_bytes(data.read_bytes()[:1000])
    with pytest.raises(WeightsError, match=r"should end at byte .* truncated \(1,000 bytes\)"):
        load_parts(folder)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"compression": 1}, r"compressed \(type 1\).*tf\.train\.Saver"),
        ({"endianness": 1}, "big-endian"),
        ({"header": False}, "header is missing"),
        ({"changes": {"a": {"dtype": 7}}}, "Tensor 'a'.*data type 7; expected floats"),
        ({"changes": {"a": {"shard": 5}}}, "data-00005-of-00001.* missing"),
        ({"changes": {"a": {"shape": (2, 2)}}}, r"24 bytes.*shape \[2, 2\]"),
        ({"changes": {"a": {"shape": (2**63,)}}}, "invalid shape or position"),
    ],
)
def test_unread_data_is_reported(written: dict[str, Any], message: str, tmp_path: Path) -> None:
    prefix = write_bundle(tmp_path / "x", {"a": np.zeros((2, 3), np.float32)}, **written)
    with pytest.raises(WeightsError, match=message):
        np.asarray(read_index(prefix)["a"])


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"lm/CNN/b_cnn_1": None},
            WeightsError,
            r"no tensor 'lm/CNN/b_cnn_1' \[3\].*It contains",
        ),
        (
            {"lm/CNN_proj/W_proj": np.zeros((5, 4), np.float32)},
            WeightsError,
            r"'lm/CNN_proj/W_proj'.*shape \[5, 4\]; expected \[5, 3\]",
        ),
        (
            {"lm/CNN_proj/b_proj": np.array([1.0, np.nan, 0.0], np.float32)},
            WeightsError,
            "'lm/CNN_proj/b_proj'.*NaN.*diverged",
        ),
        (
            {"lm/CNN_proj/b_proj": np.zeros(3, np.int64)},
            WeightsError,
            "has type int64; expected a floating-point type",
        ),
        ({"lm/softmax/W": np.zeros((3, 3), np.float32)}, WeightsError, r"\[3, 3\].*\[12, 3\]"),
        ("one direction", ConfigError, "no backward language model.*'bidirectional': false"),
    ],
)
def test_mismatched_variables_are_named(
    change: Any, error: type[ElmoError], message: str, tmp_path: Path
) -> None:
    tensors = dict(VARIABLES)
    if change == "one direction":
        tensors = {n: v for n, v in tensors.items() if "RNN_1" not in n}
    else:
        tensors |= change
    prefix = rewritten(tmp_path / "x", {n: v for n, v in tensors.items() if v is not None})
    with pytest.raises(error, match=message):
        load_parts(prefix)


def test_accumulators_of_another_model_are_rejected(tmp_path: Path) -> None:
    ours = tmp_path / "ours"
    run(app, ["convert", str(FOLDER), str(ours)])
    from safetensors.torch import load_file, save_file

    tensors = load_file(ours / "adagrad.safetensors")
    tensors.pop("head.bias")
    save_file(tensors, ours / "adagrad.safetensors")
    with pytest.raises(WeightsError, match=r"adagrad\.safetensors.*'head\.bias' \[12\] is missing"):
        load_parts(ours)


def test_overlapping_blocks_are_rejected(tmp_path: Path) -> None:
    """An index of 1 MB could list one block 100,000 times, which would take hours to read."""
    entries = block([(b"a", b"b")] * 1000)
    index = block([(b"a", varint(0) + varint(len(entries)))] * 1000)
    data = entries + bytes(5)
    footer = varint(0) * 2 + varint(len(data)) + varint(len(index))
    end = footer.ljust(40, b"\0") + MAGIC.to_bytes(8, "little")
    (tmp_path / "x.index").write_bytes(data + index + bytes(5) + end)
    with pytest.raises(WeightsError, match="its blocks overlap"):
        read_index(tmp_path / "x")


@pytest.mark.parametrize("step", [np.float32("nan"), np.float64("inf"), np.zeros(2, np.int64)])
def test_an_invalid_step_is_rejected(step: Any, tmp_path: Path) -> None:
    prefix = rewritten(tmp_path / "x", {**VARIABLES, "global_step": np.asarray(step)})
    with pytest.raises(WeightsError, match=r"global_step.* expected a single number"):
        load_parts(prefix)
