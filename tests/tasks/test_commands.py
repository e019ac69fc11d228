"""`elmo task` as used from the command line, and a custom task in one file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from elmokit.cli.main import app
from elmokit.errors import ElmoError, ElmoWarning
from tests.conftest import TINY_MODEL
from tests.tasks.conftest import SMALL
from tests.tasks.custom_task import custom_task

NO_STATIC_VECTORS = ("--static", "none")


def elmo(*arguments: object, given: str | None = None) -> Result:
    """Run a command in this process, which has already imported torch."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], input=given)
    if result.exception is not None and not isinstance(result.exception, SystemExit | ElmoError):
        raise result.exception
    return result


def error(*arguments: object) -> str:
    found = elmo(*arguments).exception
    assert isinstance(found, ElmoError)
    return str(found)


def test_ner_from_training_to_prediction(files: tuple[str, str], tmp_path: Path) -> None:
    out = tmp_path / "run"
    changes = [part for setting in SMALL for part in ("--set", setting)]
    done = elmo(
        *("task", "ner", "train", *files, files[1], "-o", out, "--model", TINY_MODEL, "--json"),
        *("--cache-dir", tmp_path / "cache", "--seed", 3, "--device", "cpu"),
        *(*changes, "--set", "train.epochs=8", "--set", "elmo.penalty=0.01"),
    )
    assert done.exit_code == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["test"]["f1"] > 98
    assert "s_2 = " in done.stderr
    assert "gamma = " in done.stderr
    config = json.loads((out / "config.json").read_text())["config"]
    assert (config["train"]["seed"], config["elmo"]["penalty"]) == (3, 0.01)

    done = elmo("task", "ner", "evaluate", out, files[1], "--json", "--device", "cpu")
    assert json.loads(done.stdout)["f1"] == result["test"]["f1"]

    text = "Ann saw Bob in Paris. Carla left.\n"
    done = elmo("task", "ner", "predict", out, "-", "--device", "cpu", given=text)
    assert done.exit_code == 0, done.stderr
    sentences = done.stdout.rstrip("\n").split("\n\n")
    assert [s.split("\n")[0] for s in sentences] == ["Ann\tB-PER", "Carla\tB-PER"]
    done = elmo("task", "ner", "predict", out, "-", "--json", "--device", "cpu", given=text)
    first = json.loads(done.stdout.splitlines()[0])
    assert {"type": "LOC", "start": 4, "end": 5, "text": "Paris", "characters": [15, 20]} in first[
        "entities"
    ]

    unknown = tmp_path / "unknown.txt"
    unknown.write_text("Ann x B-PER\nsaw x O\nMars x B-PLANET\n")
    with pytest.warns(ElmoWarning, match=r"1 gold label absent from the training data.*: PLANET"):
        done = elmo("task", "ner", "evaluate", out, unknown, "--device", "cpu")
    assert done.exit_code == 0

    bad = tmp_path / "bad.txt"
    bad.write_text("Ann x B-PER\nsaw\n")
    assert "bad.txt, line 2" in error("task", "ner", "evaluate", out, bad)
    bad.write_text("\n")
    assert "contains no examples" in error("task", "ner", "evaluate", out, bad)
    message = error("task", "ner", "predict", out, "-", "--input", "conl")
    assert "Did you mean 'conll'?" in message


def test_impossible_requests_are_rejected_before_layers_are_computed(
    files: tuple[str, str], tmp_path: Path
) -> None:
    out, cache = tmp_path / "run", tmp_path / "cache"
    command = ["task", "ner", "train", *files, "--model", TINY_MODEL, "--cache-dir", cache]
    changes = [part for setting in SMALL for part in ("--set", setting)]
    own = [*command, *changes, "--device", "cpu", "--set", "train.epochs=1", "-o"]
    done = elmo(*own, out, "--elmo", "none", "--quiet")
    assert done.exit_code == 0, done.stderr
    assert "dev: f1 " in done.stderr  # only the dev score
    assert "epoch 1:" not in done.stderr
    assert "already contains a trained task model" in error(*own, out)
    assert "different settings: elmo.place" in error(*own, out, "--resume")
    assert "expected 3" in error(*own, tmp_path / "new", "--set", "elmo.mix=0.5,0.5")
    assert not cache.exists()
    assert not (tmp_path / "new").exists()


def test_custom_task_is_one_file(tmp_path: Path) -> None:
    task, *arguments = custom_task(tmp_path)
    done = elmo("task", task, *arguments, "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["dev"]["accuracy"] == 100
    assert "`elmo task my_task.py predict" in (tmp_path / "run" / "README.md").read_text()
    message = error("task", task, *arguments[:3], arguments[2], *arguments[3:], "--resume")
    assert "elmo task my_task.py evaluate" in message
    assert "completion" not in elmo("task", task, "--help").stdout
    done = elmo(
        "task", task, "predict", tmp_path / "run", "-", "--device", "cpu", given="a 7\nno end\n"
    )
    assert done.stdout.split() == ["1", "0"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["ner", "train", "nothing.txt", "nothing.txt", "-o", "x", *NO_STATIC_VECTORS],
            "does not exist",
        ),
        (["gone.py", "predict", "x", "-"], "gone.py does not exist"),
        (["ner", "predict", "nowhere", "-"], "No trained task model"),
        (
            ["ner", "train", __file__, __file__, "-o", "x", "--elmo", "none", *NO_STATIC_VECTORS],
            "line 1",
        ),
    ],
)
def test_invalid_usage_is_reported(arguments: list[str], message: str) -> None:
    assert message in error("task", *arguments)


@pytest.mark.parametrize(
    "option",
    [["--cache-gb", "-1"], ["--cache-gb", "inf"], ["--cache-gb", "nan"], ["--elmo", "top"]],
)
def test_invalid_option_is_a_usage_error(option: list[str]) -> None:
    done = elmo("task", "ner", "train", __file__, __file__, "-o", "x", *option)
    assert done.exit_code == 2
    assert option[0] in done.stderr


def test_unknown_task_is_a_usage_error() -> None:
    assert elmo("task", "nerr", "train").exit_code == 2
    result = elmo("task", "sentiment", "train")
    assert result.exit_code == 2
    assert "sst5" in result.stderr


def test_help_works_without_torch() -> None:
    program = (
        "import sys; from elmokit.cli.main import app\n"
        "try: app(['task', 'ner', 'train', '--help'])\n"
        "except SystemExit: pass\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    for word in ("--elmo", "--static", "--set", "TRAIN"):
        assert word in done.stdout
