"""`elmo convert` between AllenNLP's format and elmokit's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from elmokit.cli.convert import convert
from elmokit.cli.info import info
from elmokit.errors import OutputError, WeightsError
from elmokit.sources import modeldir
from elmokit.sources.resolve import load_parts
from tests.sources.models import WORDS, make_parts, same_bits, write_hdf5

app = typer.Typer()
app.command()(info)
app.command()(convert)


def run(*arguments: str | Path) -> Any:
    return CliRunner().invoke(app, ["convert", *map(str, arguments)])


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return write_hdf5(make_parts(), tmp_path / "old")


def test_round_trip_is_bit_identical(old: Path, tmp_path: Path) -> None:
    assert run(old, tmp_path / "ours").exit_code == 0
    assert run(tmp_path / "ours", tmp_path / "back", "--to", "hdf5").exit_code == 0
    assert same_bits(load_parts(tmp_path / "back").bilm, make_parts().bilm)
    assert load_parts(tmp_path / "ours").metadata == {
        "converted_from": ["options.json", "weights.hdf5"]
    }


def test_written_files_are_listed(old: Path, tmp_path: Path) -> None:
    out = tmp_path / "ours"
    result = run(old, out)
    size = (out / "model.safetensors").stat().st_size
    assert f"{out / 'model.safetensors'}  {size:,} bytes" in result.stdout
    result = run(old, out, "--overwrite", "--json")
    written = json.loads(result.stdout)
    assert written["written"] == {file.name: file.stat().st_size for file in out.iterdir()}
    assert (written["format"], written["folder"], written["omitted"]) == ("elmokit", str(out), [])


def test_lost_parts_are_reported(tmp_path: Path) -> None:
    modeldir.save(make_parts(full=True), tmp_path / "full")
    result = run(tmp_path / "full", tmp_path / "old", "--to", "hdf5")
    assert "the LM head, the warm state" in result.stderr
    assert {file.name for file in (tmp_path / "old").iterdir()} == {
        "options.json",
        "weights.hdf5",
        "vocab.txt",
    }
    result = run(tmp_path / "full", tmp_path / "old", "--to", "hdf5", "--overwrite", "--json")
    assert json.loads(result.stdout)["omitted"][:2] == ["the LM head", "the warm state"]


def test_head_can_be_omitted(tmp_path: Path) -> None:
    modeldir.save(make_parts(full=True), tmp_path / "full")
    assert run(tmp_path / "full", tmp_path / "bare", "--without-head").exit_code == 0
    bare = load_parts(tmp_path / "bare")
    assert bare.head is None
    assert bare.vocabulary is None
    assert bare.warm is not None
    assert same_bits(bare.bilm, make_parts(full=True).bilm)
    assert not (tmp_path / "bare" / "head.safetensors").exists()


def test_vocabulary_can_be_passed(tmp_path: Path) -> None:
    old = write_hdf5(make_parts("words"), tmp_path / "old")
    assert isinstance(run(old, tmp_path / "ours").exception, WeightsError)
    (tmp_path / "words.txt").write_text("\n".join(WORDS) + "\n")
    assert run(old, tmp_path / "ours", "--vocab", tmp_path / "words.txt").exit_code == 0
    vocabulary = load_parts(tmp_path / "ours").vocabulary
    assert vocabulary is not None
    assert tuple(vocabulary) == WORDS


def test_existing_output_is_not_overwritten_by_default(old: Path, tmp_path: Path) -> None:
    run(old, tmp_path / "ours")
    assert isinstance(run(old, tmp_path / "ours").exception, OutputError)
    assert run(old, tmp_path / "ours", "--overwrite").exit_code == 0
    (tmp_path / "ours/notes.txt").write_text("mine")
    assert isinstance(run(old, tmp_path / "ours", "--overwrite").exception, OutputError)


def test_unknown_format_is_a_usage_error(old: Path, tmp_path: Path) -> None:
    assert run(old, tmp_path / "out", "--to", "pickle").exit_code == 2


@pytest.mark.parametrize("name", ["out.zip", "weights.hdf5", "model.onnx"])
def test_output_that_looks_like_a_file_is_rejected(old: Path, tmp_path: Path, name: str) -> None:
    assert run(old, tmp_path / name).exit_code == 2
    assert not (tmp_path / name).exists()
