"""Invalid settings are usage errors that name the field and leave no files."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Elmo
from tests.conftest import TINY_MODEL
from tests.data.texts import random_text

RATE = "optimizer.learning_rate"

SETTINGS = [
    *(
        f"{RATE}={value}"
        for value in ("fast", "1e-3x", "[1,2]", "nan", "NaN", "", "null", "-1", "0", "true")
    ),
    *(f"{RATE}=1e400", f'{RATE}="0.1"'),
    *(f"optimizer.{name}=x" for name in ("beta2", "warmup", "clip", "final", "epsilon")),
    *("checkpoint_every=x", "patience=x", "optimizer.beta2=2", "optimizer.clip=-1"),
    *("step.dropout=true", "step.dropout=1", "start=x", "seed=x", "seed=-1", "seed=1e3"),
    *("step.seed=-1", "optimizer=1", "model=1", "lstm.dim=1000000000", "step.rows=10000000"),
    *("step.steps=1000000", "keep=0", "log_every=true", "optimizer.kind=sgd", "lstm.dimm=3"),
    *("char_cnn.max_characters_per_token=100000000", "char_cnn.filters=[[1,1000000]]"),
]
OPTIONS = [
    *(("--epochs", value) for value in ("nan", "-1", "0", "inf")),
    *(("--max-steps", "-1"), ("--max-steps", "0")),
    *(("--max-tokens", "-1"), ("--seed", "-1")),
    *(("--set", "nothing"), ("--preset", "tiny")),
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from elmokit.data.layout import PrepareSettings
    from elmokit.data.prepare import prepare

    folder = tmp_path_factory.mktemp("corpus")
    (folder / "text.txt").write_text(random_text(5), "utf-8")
    prepare([folder / "text.txt"], folder / "data", PrepareSettings(min_count=1), workers=1)
    return folder / "data"


def words(errors: str) -> str:
    """Return the output without the box around it."""
    return " ".join(errors.replace("\u2502", " ").split())


def usage_error(shell: Elmo, tmp_path: Path, *arguments: str | Path) -> str:
    code, output, errors = shell(*arguments)
    assert (code, output) == (2, "")
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())
    return words(errors)


@pytest.mark.parametrize("setting", SETTINGS)
def test_train_rejects_invalid_settings(
    shell: Elmo, tmp_path: Path, corpus: Path, setting: str
) -> None:
    output = usage_error(shell, tmp_path, "train", corpus, "-o", "run", "--set", setting)
    name, _, value = setting.partition("=")
    assert name in output
    assert f"'{value}'"[:20] in output or "Did you mean" in output


@pytest.mark.parametrize(("option", "value"), OPTIONS)
def test_train_rejects_invalid_options(
    shell: Elmo, tmp_path: Path, corpus: Path, option: str, value: str
) -> None:
    output = usage_error(shell, tmp_path, "train", corpus, "-o", "run", option, value)
    assert value in output
    assert option in output or option in ("--set", "--preset")


def test_unknown_setting_lists_only_similar_names(
    shell: Elmo, tmp_path: Path, corpus: Path
) -> None:
    output = usage_error(shell, tmp_path, "train", corpus, "-o", "run", "--set", "rowz=1")
    assert "step.rows" in output
    assert output.count(",") < 3


def test_text_file_instead_of_a_prepared_corpus_is_reported(shell: Elmo, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A text .\n")
    code, _, errors = shell("finetune", TINY_MODEL, "a.txt", "-o", "run")
    assert code == 1
    assert "elmo prepare a.txt" in errors


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--set", f"{RATE}=fast"),
        ("--set", "lstm.dim=8"),  # the shape of an existing model
        *(("--epochs", value) for value in ("nan", "-1")),
        *(("--max-steps", "-1"), ("--head-steps", "-1"), ("--head-steps", "1000000")),
        ("--seed", "-1"),
    ],
)
def test_finetune_rejects_invalid_settings(
    shell: Elmo, tmp_path: Path, corpus: Path, option: str, value: str
) -> None:
    given = ("finetune", TINY_MODEL, corpus, "--new-head", "-o", "run")
    usage_error(shell, tmp_path, *given, option, value)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        *(("--set", f"train.learning_rate={value}") for value in ("fast", "nan", "-1", "true")),
        *(("--set", f"model.hidden={value}") for value in ("x", "0", "10000000", "1.5")),
        *(("--set", "model.hiden=3"), ("--set", "elmo.place=top"), ("--set", "train.seed=-1")),
        *(("--set", f"elmo.{change}") for change in ("layer=first", "mix=nan,0,0", "penalty=-1")),
        *(("--set", "train.share=0"), ("--set", "train.share=2")),
        *(("--seed", "-1"), ("--preset", "best")),
    ],
)
def test_task_rejects_invalid_settings(
    shell: Elmo, tmp_path: Path, option: str, value: str
) -> None:
    output = usage_error(shell, tmp_path, *("task ner train a b -o run").split(), option, value)
    assert value.partition("=")[0] in output


def test_bench_rejects_invalid_settings(shell: Elmo, tmp_path: Path) -> None:
    code, _, errors = shell("bench", "train", "--preset", "toy", "--rows", "8,x")
    assert code == 2
    assert "Invalid value for --rows: '8,x'" in words(errors)
