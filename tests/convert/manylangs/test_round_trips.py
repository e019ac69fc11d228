"""ELMoForManyLangs models in elmokit's format, and with the commands."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elmokit
from elmokit.cli.main import app
from elmokit.embed.fingerprint import fingerprint
from elmokit.errors import ConfigError, ElmoError
from elmokit.sources.resolve import load_parts
from elmokit.train.finetune import prepare_initial_model
from tests.convert.manylangs.tiny import CHARACTERS, MAX, SENTENCES, SHAPES, run, write
from tests.sources.models import same_bits


@pytest.mark.parametrize("kind", SHAPES)
def test_converted_model_gives_the_same_vectors(kind: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "m", SHAPES[kind])
    result = run(app, ["convert", str(folder), str(tmp_path / "ours")])
    assert result.exit_code == 0, result.output
    assert "lexicon.json" in result.stdout
    one, two = elmokit.load(folder), elmokit.load(tmp_path / "ours")
    assert same_bits(one.bilm, two.bilm)
    assert one.config == two.config
    sentences = SENTENCES[:3]
    pairs = zip(one.embed(sentences[1:]), two.embed(sentences[1:]), strict=True)
    assert all(np.array_equal(a.layers, b.layers) for a, b in pairs)
    assert fingerprint(one) == fingerprint(two)


def test_zip_archive_is_read_like_the_directory(tmp_path: Path) -> None:
    folder = write(tmp_path / "m", config_path="/users4/x/cnn_tiny.json")
    with zipfile.ZipFile(tmp_path / "144.zip", "w") as archive:
        for path in folder.iterdir():
            archive.write(path, f"144/{path.name}")
    assert same_bits(load_parts(tmp_path / "144.zip").bilm, load_parts(folder).bilm)


def test_conversion_to_hdf5_is_not_supported(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    result = run(app, ["convert", str(folder), str(tmp_path / "out"), "--to", "hdf5"])
    assert result.exit_code == 1
    assert "does not support models with a lexicon" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_info_describes_the_lexicon(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    output = run(app, ["info", str(folder)]).stdout
    assert "a lexicon: 9 words (4 dimensions) and 21 Unicode characters (5 dimensions)" in output
    assert "12 filters of width 1 to 3, relu, highway layers: 2" in output
    info = json.loads(run(app, ["info", str(folder), "--json"]).stdout)
    lexicon = info["bilm"]["lexicon"]
    assert (lexicon["n_words"], lexicon["n_characters"]) == (9, 21)
    assert lexicon["max_characters_per_token"] == MAX


@pytest.mark.filterwarnings("ignore:The warm state is the mean over only")
def test_embed_and_warm_commands(tmp_path: Path) -> None:
    folder, text = write(tmp_path / "m"), tmp_path / "text.txt"
    text.write_text("".join(" ".join(s) + "\n" for s in SENTENCES[:3]) * 3)
    out = tmp_path / "v.npz"
    args = ["embed", str(text), "-o", str(out), "--model", str(folder), "-q", "--tokenized"]
    result = run(app, args)
    assert result.exit_code == 0, result.output
    with np.load(out) as file:
        assert file.files
    run(app, ["convert", str(folder), str(tmp_path / "ours")])
    result = run(app, ["warm", str(tmp_path / "ours"), str(text), "--tokenized"])
    assert result.exit_code == 0, result.output
    assert elmokit.load(tmp_path / "ours").embed(SENTENCES[:1], state="warm")


def test_another_lexicon_changes_the_fingerprint(tmp_path: Path) -> None:
    one = elmokit.load(write(tmp_path / "m"))
    text = (tmp_path / "m" / "word.dic").read_text("utf-8").replace("god\t", "dog\t")
    (tmp_path / "m" / "word.dic").write_text(text, "utf-8")
    assert fingerprint(one) != fingerprint(elmokit.load(tmp_path / "m"))


def test_model_can_be_used_but_not_trained(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        prepare_initial_model(load_parts(write(tmp_path / "m")), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"words": None}, "0 words; expected 9"),
        ({"words": "abc"}, "Invalid value for words: 'abc'. Expected a valid list"),
        ({"characters": [*CHARACTERS, "a"]}, "contains 'a' more than once"),
        ({"characters": [*CHARACTERS, "ж"]}, "22 characters; expected 21"),
    ],
)
def test_damaged_lexicon_of_a_model_directory_is_rejected(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    run(app, ["convert", str(write(tmp_path / "m")), str(tmp_path / "ours")])
    path = tmp_path / "ours" / "lexicon.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | change), "utf-8")
    with pytest.raises(ElmoError, match=said):
        load_parts(tmp_path / "ours")
    path.unlink()
    with pytest.raises(ElmoError, match=r"lexicon\.json does not exist"):
        load_parts(tmp_path / "ours")
