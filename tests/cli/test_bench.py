"""`elmo bench embed` as used from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elmokit.cli.bench import app
from elmokit.errors import ConfigError, DataError


def test_report_is_json_on_stdout(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The cat sat on the mat. It slept.\n" * 50)
    arguments = ["embed", "--preset", "toy", "--batch", "1,4", "--precision", "exact"]
    arguments += ["--threads", "1", "--device", "cpu", "--tokens", "60", "--rounds", "1"]
    result = CliRunner().invoke(app, [*arguments, "--text", str(text), "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["model"]["name"] == "toy"
    assert [row["batch"] for row in report["cells"]] == [1, 4]
    assert report["machine"]["cores"] >= 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--batch", "1,two"], "Invalid value for --batch: '1,two'"),
        (["--batch", "0"], "Invalid value for --batch: '0'"),
        (["--batch", ""], "Invalid value for --batch: ''"),
        (["--threads", "x"], "Invalid value for --threads: 'x'"),
        (["--preset", "toy", "--model", "x"], "preset"),
        (["--tokens", "0"], "tokens"),
    ],
)
def test_invalid_usage_is_reported(arguments: list[str], said: str) -> None:
    result = CliRunner().invoke(app, ["embed", *arguments], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert said in result.output


def test_unknown_precision_preset_and_file_are_errors() -> None:
    runner = CliRunner()
    for arguments, said in (
        (["--precision", "exakt"], "Did you mean 'exact'"),
        (["--preset", "smal"], "Did you mean 'small'"),
    ):
        result = runner.invoke(app, ["embed", *arguments])
        assert isinstance(result.exception, ConfigError)
        assert said in str(result.exception)
    result = runner.invoke(app, ["embed", "--text", "nowhere.txt"])
    assert isinstance(result.exception, DataError)


def test_training_steps_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("elmokit.train.bench._SYNTHETIC_TOKENS", 20_000)
    arguments = ["train", "--preset", "toy", "--rows", "2,4", "--vocabulary", "1000"]
    arguments += ["--rounds", "4", "--device", "cpu", "--set", "step.negatives=16"]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == 0, result.output
    speeds = json.loads(result.stdout)["speeds"]
    assert [speed["rows"] for speed in speeds] == [2, 4]
    assert all(speed["tokens_per_second"] > 0 for speed in speeds)
    shown = CliRunner().invoke(app, arguments)
    assert "tokens per second" in shown.stdout
