"""Model directories: bit-identical round trips, and validation when they are loaded."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from elmokit.errors import ConfigError, ElmoError, WeightsError
from elmokit.model.softmax import LMHead
from elmokit.sources.modeldir import load, save
from tests.sources.models import CONFIGS, WORDS, make_parts, same_bits


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save(make_parts(), tmp_path / "model")
    return tmp_path / "model"


def change_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads((folder / "config.json").read_text())
    change(values)
    (folder / "config.json").write_text(json.dumps(values))


def change_tensors(
    folder: Path,
    change: Callable[[dict[str, torch.Tensor]], object],
    file: str = "model.safetensors",
) -> None:
    tensors = {name: t.clone() for name, t in load_file(folder / file).items()}
    change(tensors)
    save_file(tensors, folder / file)


@pytest.mark.parametrize("kind", CONFIGS)
def test_round_trip_of_every_shape_is_bit_identical(kind: str, tmp_path: Path) -> None:
    parts = make_parts(kind)
    save(parts, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.bilm.config == parts.bilm.config
    assert same_bits(loaded.bilm, parts.bilm)
    assert not loaded.bilm.training


def test_round_trip_preserves_all_optional_parts(tmp_path: Path) -> None:
    parts = make_parts(full=True)
    assert parts.head is not None
    assert parts.warm is not None
    save(parts, tmp_path / "model")
    loaded = load(tmp_path / "model")
    assert loaded.vocabulary is not None
    assert tuple(loaded.vocabulary) == WORDS
    assert loaded.head is not None
    assert same_bits(loaded.head, parts.head)
    assert loaded.warm is not None
    assert torch.equal(loaded.warm.cell, parts.warm.cell)
    assert torch.equal(loaded.warm.hidden, parts.warm.hidden)
    assert (loaded.card, loaded.metadata) == (parts.card, parts.metadata)
    assert loaded.source == str(tmp_path / "model")
    assert {file.name for file in loaded.files} == {
        p.name for p in loaded.files[0].parent.iterdir()
    }


def test_second_round_trip_writes_identical_files(tmp_path: Path) -> None:
    save(make_parts(full=True), tmp_path / "one")
    save(load(tmp_path / "one"), tmp_path / "two")
    for file in (tmp_path / "one").iterdir():
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes()


def test_loaded_model_can_be_saved_over_itself(saved: Path) -> None:
    loaded = load(saved)
    save(loaded, saved, overwrite=True)
    assert same_bits(load(saved).bilm, make_parts().bilm)
    assert same_bits(loaded.bilm, make_parts().bilm)


def test_training_a_loaded_model_does_not_change_its_file(saved: Path) -> None:
    loaded = load(saved)
    with torch.no_grad():
        for parameter in loaded.bilm.parameters():
            parameter.add_(1.0)
    assert same_bits(load(saved).bilm, make_parts().bilm)


def test_half_precision_model_is_saved_in_float32(tmp_path: Path) -> None:
    parts = make_parts()
    parts.bilm.half()
    save(parts, tmp_path / "model")
    assert all(
        t.dtype == torch.float32 for t in load_file(tmp_path / "model/model.safetensors").values()
    )


def test_generated_card_describes_the_shape(saved: Path) -> None:
    card = load(saved).card
    assert card is not None
    assert card.startswith("# model\n")
    assert "3 vectors of 8 dimensions per token" in card
    assert f"{load(saved).n_parameters:,}" in card


def test_additions_to_the_card_are_kept_and_its_table_is_updated(saved: Path) -> None:
    card = saved / "README.md"
    own = "\r\n## License\r\n\r\nCC0\r\n\r\n| LM head | no |\r\n| warm state | 1 | 2 |\r\n"
    text = card.read_text().replace("| LM head | no |", "| LM head  |  no |") + own
    card.write_bytes(text.encode())
    parts = load(saved)
    parts.head, parts.vocabulary = make_parts(full=True).head, make_parts(full=True).vocabulary
    save(parts, saved, overwrite=True)
    row = "| LM head | yes (`head.safetensors`) |"
    assert card.read_bytes().decode() == text.replace("| LM head  |  no |", row)


def test_all_files_have_the_same_permissions(saved: Path) -> None:
    assert len({file.stat().st_mode for file in saved.iterdir()}) == 1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_float_types_are_read_as_float32(saved: Path, dtype: torch.dtype) -> None:
    expected = {name: t.to(dtype).float() for name, t in load(saved).bilm.state_dict().items()}
    change_tensors(saved, lambda t: t.update({name: v.to(dtype) for name, v in t.items()}))
    found = load(saved).bilm.state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert all(t.dtype == torch.float32 for t in found.values())


# ---------------------------------------------------------------------------------- damaged weights


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("encoder.char_embed"), r"'encoder\.char_embed' \[261, 3\] is missing"),
        (
            lambda t: t.update({"encoder.chars_embed": torch.zeros(2)}),
            r"unexpected tensor 'encoder\.chars_embed'",
        ),
        (
            lambda t: t.update({"forward_lm.layers.0.bias": torch.zeros(25)}),
            r"'forward_lm\.layers\.0\.bias' has shape \[25\], expected \[24\]",
        ),
        (
            lambda t: t.update({"forward_lm.layers.0.bias": torch.zeros(24, dtype=torch.int32)}),
            r"'forward_lm\.layers\.0\.bias' has type I32, expected F32",
        ),
        (
            lambda t: t["forward_lm.layers.1.bias"].fill_(float("nan")),
            r"'forward_lm\.layers\.1\.bias' .* NaN",
        ),
        (
            lambda t: t["encoder.projection.bias"][1].fill_(-float("inf")),
            r"'encoder\.projection\.bias' .* infinite",
        ),
        (
            lambda t: t.update(
                {"encoder.projection.bias": torch.full((4,), 1e300, dtype=torch.double)}
            ),
            "infinite",
        ),
        (lambda t: t.clear(), "is missing"),
    ],
    ids=["missing", "unexpected", "shape", "integers", "nan", "inf", "overflow", "empty"],
)
def test_invalid_tensor_is_named(saved: Path, change: Any, message: str) -> None:
    change_tensors(saved, change)
    with pytest.raises(WeightsError, match=message):
        load(saved)


def test_large_finite_values_are_accepted(saved: Path) -> None:
    change_tensors(saved, lambda t: t["forward_lm.layers.0.bias"].fill_(3e38))
    assert float(load(saved).bilm.state_dict()["forward_lm.layers.0.bias"].max()) > 2.9e38


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "truncated"),
        (b"\xff" * 100, "safetensors"),
        (struct.pack("<Q", 12) + b"{broken json", "safetensors"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "options.json"),
        (b"PK\x03\x04" + bytes(100), "pickle"),
    ],
    ids=["empty", "noise", "header", "lfs", "hdf5", "pickle"],
)
def test_other_file_types_are_recognized(saved: Path, content: bytes, message: str) -> None:
    (saved / "model.safetensors").write_bytes(content)
    with pytest.raises(WeightsError, match=message):
        load(saved)


@pytest.mark.parametrize("kept", [0.001, 0.3, 0.5, 0.99])
def test_truncated_file_is_an_error(saved: Path, kept: float) -> None:
    content = (saved / "model.safetensors").read_bytes()
    (saved / "model.safetensors").write_bytes(content[: int(kept * len(content))])
    with pytest.raises(WeightsError, match="truncated"):
        load(saved)


def test_missing_weight_file_is_named(saved: Path) -> None:
    (saved / "model.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"model\.safetensors"):
        load(saved)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("head.safetensors", lambda t: t.pop("bias"), "'bias' .* missing"),
        ("head.safetensors", lambda t: t.pop("weight"), "'weight' .* missing"),
        ("head.safetensors", lambda t: t.update(bias=torch.tensor(1.0)), "'bias' has shape"),
        ("head.safetensors", lambda t: t.update(weight=torch.zeros(5, 7)), r"\[5, 7\].*\[5, 4\]"),
        ("warm.safetensors", lambda t: t.update(cell=torch.zeros(2, 2, 3, 6)), r"\[2, 2, 1, 6\]"),
        ("warm.safetensors", lambda t: t["hidden"].fill_(float("inf")), "infinite"),
    ],
)
def test_invalid_head_or_warm_state_is_named(
    tmp_path: Path, file: str, change: Any, message: str
) -> None:
    save(make_parts(full=True), tmp_path / "model")
    change_tensors(tmp_path / "model", change, file)
    with pytest.raises(WeightsError, match=message):
        load(tmp_path / "model")


# ---------------------------------------------------------------------------------------- config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c["bilm"]["lstm"].update(dims=3), r"lstm\.dims.*Did you mean 'lstm\.dim'"),
        (lambda c: c.update(format_version=2), "newer elmokit.*pip install --upgrade"),
        (lambda c: c.update(format_version="1"), "'format_version' should be"),
        (lambda c: c.pop("format"), "'format' should be 'elmokit', found None"),
        (lambda c: c.update(blim=c.pop("bilm")), "no key 'bilm'.*Did you mean 'blim'"),
        (lambda c: c.update(bilm=[1]), r"config\.json: .*\[1\]"),
        (lambda c: c["bilm"]["char_cnn"].update(filters=[["a", 1]]), "config.json"),
        (lambda c: c["bilm"]["char_cnn"].update(filters=[5]), "config.json"),
        (lambda c: c["bilm"]["lstm"].update(dim="big"), r"lstm\.dim: 'big'"),
        (lambda c: c["bilm"]["lstm"].update(dim=10**30), "config.json|shape"),
        (lambda c: c["bilm"]["lstm"].update(dim=60_000), "has shape"),
        (lambda c: c["bilm"]["lstm"].update(n_layers=10**9), r"lstm\.n_layers"),
        (lambda c: c["bilm"]["char_cnn"].update(n_highway=100), "is missing"),
    ],
)
def test_invalid_config_is_rejected_immediately(saved: Path, change: Any, message: str) -> None:
    change_config(saved, change)
    started = time.process_time()
    with pytest.raises((ConfigError, WeightsError), match=message):
        load(saved)
    assert time.process_time() - started < 30  # a billion layers would take hours


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000])
def test_config_that_is_not_a_json_object_is_an_error(saved: Path, content: bytes) -> None:
    (saved / "config.json").write_bytes(content)
    with pytest.raises(ConfigError, match=r"config\.json"):
        load(saved)


def test_unknown_metadata_is_kept(saved: Path) -> None:
    change_config(saved, lambda c: c.update(name="mine", note=[1, {"a": None}]))
    assert load(saved).metadata == {"name": "mine", "note": [1, {"a": None}]}


@pytest.mark.parametrize("name", ["config.json", "vocab.txt", "README.md"])
def test_huge_text_files_are_not_read(name: str, tmp_path: Path) -> None:
    save(make_parts(full=True), tmp_path / "model")
    os.truncate(tmp_path / "model" / name, 2**40)  # sparse: takes no disk space
    with pytest.raises(ElmoError, match="bytes; the limit is"):
        load(tmp_path / "model")


def test_clip_that_overflows_the_dtype_is_an_error(saved: Path) -> None:
    change_config(saved, lambda c: c["bilm"]["lstm"].update(cell_clip=1e308))
    with pytest.raises(ConfigError, match="cell_clip"):
        load(saved)


# ------------------------------------------------------------------------------------ vocabulary


def test_head_for_another_vocabulary_is_an_error(tmp_path: Path) -> None:
    save(make_parts(full=True), tmp_path / "model")
    (tmp_path / "model/vocab.txt").write_text("<S>\n</S>\n<UNK>\n")
    with pytest.raises(WeightsError, match="3 words, but the head has 5 rows"):
        load(tmp_path / "model")


def test_word_input_model_for_another_vocabulary_is_an_error(tmp_path: Path) -> None:
    save(make_parts("words"), tmp_path / "model")
    (tmp_path / "model/vocab.txt").write_text("a\nb\n")
    with pytest.raises(WeightsError, match="5 word embeddings, but its vocabulary has 2"):
        load(tmp_path / "model")


def test_error_for_a_missing_vocabulary_says_where_to_put_it(tmp_path: Path) -> None:
    save(make_parts("words"), tmp_path / "model")
    (tmp_path / "model/vocab.txt").rename(tmp_path / "words.txt")
    with pytest.raises(WeightsError, match=r"5 word embeddings.* is missing.*vocab\.txt"):
        load(tmp_path / "model")
    assert load(tmp_path / "model", vocab=tmp_path / "words.txt").vocabulary is not None


def test_mismatched_parts_are_not_saved(tmp_path: Path) -> None:
    parts = make_parts(full=True)
    parts.head = LMHead(7, 4)
    with pytest.raises(WeightsError, match="head has 7 rows"):
        save(parts, tmp_path / "model")
    assert list(tmp_path.iterdir()) == []


LOAD_WITH_LIMIT = """
import resource, sys
from pathlib import Path
from elmokit.errors import ElmoError
from elmokit.sources.resolve import load_parts
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 2**31, used + 2**31))
try:
    load_parts(sys.argv[1])
except ElmoError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited on Linux")
def test_huge_sparse_file_is_an_error_with_an_address_space_limit(saved: Path) -> None:
    os.truncate(saved / "model.safetensors", 2**33)
    done = subprocess.run(
        [sys.executable, "-c", LOAD_WITH_LIMIT, str(saved)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "model.safetensors cannot be" in done.stdout, done.stderr
