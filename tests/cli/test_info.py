"""`elmo info`: describing models."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from elmokit.cli.convert import convert
from elmokit.cli.info import info
from elmokit.errors import WeightsError
from elmokit.sources import modeldir
from tests.sources.models import make_parts, write_hdf5

app = typer.Typer()
app.command()(info)
app.command()(convert)


@pytest.fixture
def full(tmp_path: Path) -> Path:
    modeldir.save(make_parts(full=True), tmp_path / "full")
    return tmp_path / "full"


def test_text_output_contains_all_information(full: Path) -> None:
    result = CliRunner().invoke(app, ["info", str(full)])
    assert result.exit_code == 0
    for said in (
        f"model        {full}",
        "characters, at most 50 per token",
        "3 vectors of 8 dimensions per token, one for the token encoder and one for each LSTM",
        "cell 6, projection 4 per direction",
        "cell 3.0, projection 3.0; skip connections yes",
        f"parameters   {make_parts().n_parameters:,}",
        "vocabulary   5 words",
        "LM head      yes",
        "warm state   yes",
        "model.safetensors",
        "  A card",
    ):
        assert said in result.stdout


def test_tables_of_the_model_card_are_not_shown(tmp_path: Path) -> None:
    modeldir.save(make_parts(), tmp_path / "new")
    shown = CliRunner().invoke(app, ["info", str(tmp_path / "new")]).output
    assert not [line for line in shown.splitlines() if line.strip().startswith("|")]


def test_json_output_contains_the_same_information(full: Path) -> None:
    info = json.loads(CliRunner().invoke(app, ["info", str(full), "--json"]).stdout)
    assert info["source"] == str(full)
    assert info["parameters"] == make_parts().n_parameters
    assert (info["layers"], info["vector_dim"], info["bilm"]["lstm"]["dim"]) == (3, 8, 6)
    assert (info["vocabulary"], info["head"], info["warm"]) == (5, True, True)
    assert info["metadata"] == {"name": "test", "training": {"steps": 3}}
    assert info["bytes"] == sum(file.stat().st_size for file in full.iterdir())


def test_training_steps_and_perplexity_are_shown(tmp_path: Path) -> None:
    measured = {"mean": 58.19, "state": "carry"}
    training = {"steps": 1200, "tokens": 614400, "perplexity": measured}
    parts = dataclasses.replace(make_parts(), metadata={"training": training})
    modeldir.save(parts, tmp_path / "run")
    said = CliRunner().invoke(app, ["info", str(tmp_path / "run")]).stdout
    assert "training     1,200 steps, 614,400 tokens" in said
    assert "perplexity   58.2 (carry)" in said
    # A measurement of the final model takes precedence.
    parts.metadata["perplexity"] = [{"mean": 61.0, "state": "reset"}]
    modeldir.save(parts, tmp_path / "run", overwrite=True)
    said = CliRunner().invoke(app, ["info", str(tmp_path / "run")]).stdout
    assert "perplexity   61.0 (reset)" in said
    # Training metadata without a perplexity or in another form is not an error.
    for odd in ({"steps": 3, "perplexity": None}, "by hand", None):
        parts.metadata = {"training": odd}
        modeldir.save(parts, tmp_path / "run", overwrite=True)
        result = CliRunner().invoke(app, ["info", str(tmp_path / "run")])
        assert result.exit_code == 0
        assert "perplexity" not in result.stdout


def test_hdf5_weights_are_described(tmp_path: Path) -> None:
    folder = write_hdf5(make_parts(), tmp_path / "old")
    command = ["info", str(folder / "options.json"), "--weights", str(folder / "weights.hdf5")]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0
    assert "LM head      none" in result.stdout
    assert "options.json, weights.hdf5" in result.stdout


def test_word_input_models_are_described(tmp_path: Path) -> None:
    modeldir.save(make_parts("words"), tmp_path / "words")
    result = CliRunner().invoke(app, ["info", str(tmp_path / "words")])
    assert "word ids, a closed vocabulary of 5" in result.stdout
    info = json.loads(CliRunner().invoke(app, ["info", str(tmp_path / "words"), "--json"]).stdout)
    assert (info["bilm"]["n_words"], info["bilm"]["char_cnn"]) == (5, None)


def test_missing_model_is_an_error_without_a_traceback() -> None:
    result = CliRunner().invoke(app, ["info", "nowhere"])
    assert isinstance(result.exception, WeightsError)


def test_help_does_not_import_torch() -> None:
    script = (
        "import sys; import elmokit.cli.info, elmokit.cli.convert; "
        "sys.exit(bool({'torch', 'numpy', 'h5py'} & sys.modules.keys()))"
    )
    source = Path(modeldir.__file__).parents[2]
    result = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": str(source)})
    assert result.returncode == 0
