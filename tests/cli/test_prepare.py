"""`elmo prepare`: options, output, exit codes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from elmokit.cli.prepare import prepare
from elmokit.data.corpus import Corpus
from elmokit.data.tokenizing import BLOCK_CHARACTERS
from elmokit.errors import DataError, OutputError
from tests.data.texts import documents_of, random_text, stored_documents
from tests.process_utils import Pause, elmo, start

# Called for each block of the text.
BLOCK_DONE = "elmokit.data.tokenizing.TokenizedText._provisional_ids"

app = typer.Typer()
app.command()(prepare)


def run(*arguments: str | Path, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)], input=stdin)


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "text.txt").write_text(random_text(50))
    return tmp_path / "text.txt"


def test_summary_goes_to_stderr_and_json_to_stdout(text: Path, tmp_path: Path) -> None:
    result = run(text, "-o", tmp_path / "data", "--valid", "5", "--json")
    assert result.exit_code == 0
    summary = json.loads(result.stdout)
    meta = json.loads((tmp_path / "data/meta.json").read_text())
    assert {key: summary[key] for key in meta} == meta
    assert summary["splits"]["valid"]["documents"] == 5
    assert summary["output"] == str(tmp_path / "data")
    assert summary["seconds"] > 0
    assert f"{summary['splits']['train']['tokens']:,} tokens" in result.stderr
    assert f"vocabulary of {meta['n_words']:,} words" in result.stderr
    assert run(text, "-o", tmp_path / "data", "--overwrite").stdout == ""


def test_summary_names_output_as_given(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(text, "-o", "data/", "--workers", 1)
    assert result.stderr.splitlines()[-1].startswith("data: vocabulary of ")


def test_options_take_effect(text: Path, tmp_path: Path) -> None:
    (tmp_path / "held.txt").write_text("a b\n\nc\n")
    (tmp_path / "held2.txt").write_text("d\n")
    result = run(
        *(text, "-o", tmp_path / "data", "--tokenized", "--min-count", 2, "--max-vocab", 12),
        *("--max-characters", 30, "--workers", 1, "--seed", 4),
        *("--valid-file", tmp_path / "held.txt", "--valid-file", tmp_path / "held2.txt"),
    )
    assert result.exit_code == 0, result.output
    corpus = Corpus.open(tmp_path / "data")
    assert corpus.meta.settings.to_dict() == {
        "min_count": 2,
        "max_vocab": 12,
        "max_characters": 30,
        "one_sentence_per_line": False,
        "tokenized": True,
        "valid": None,
        "seed": 4,
    }
    assert corpus.n_words == 12
    assert stored_documents(corpus, "valid") == [[["a", "b"]], [["c"]], [["d"]]]


def test_standard_input_is_read(text: Path, tmp_path: Path) -> None:
    assert run("-", "-o", tmp_path / "data", stdin=text.read_text()).exit_code == 0
    assert stored_documents(Corpus.open(tmp_path / "data")) == documents_of([text])


def test_skipped_lines_are_reported(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"a a a\n\xff\n")
    assert isinstance(run(tmp_path / "bad.txt", "-o", tmp_path / "data").exception, DataError)
    result = run(tmp_path / "bad.txt", "-o", tmp_path / "data", "--skip-bad")
    assert "1 line skipped, first: " in result.stderr
    assert "bad.txt, line 2: byte 1" in result.stderr


@pytest.mark.parametrize("valid", ["0", "1.0", "-3", "ten", "nan", "1.5"])
def test_invalid_held_out_fraction_is_a_usage_error(text: Path, tmp_path: Path, valid: str) -> None:
    result = run(text, "-o", tmp_path / "data", "--valid", valid)
    assert result.exit_code == 2
    assert "valid" in result.stderr


def test_two_held_out_options_are_a_usage_error(text: Path, tmp_path: Path) -> None:
    result = run(text, "-o", tmp_path / "data", "--valid", "2", "--valid-file", text)
    assert result.exit_code == 2


def test_existing_output_is_not_overwritten_by_default(text: Path, tmp_path: Path) -> None:
    assert isinstance(run(text, "-o", tmp_path).exception, OutputError)
    assert text.exists()


@pytest.mark.parametrize(
    ("number", "workers"),
    [
        (signal.SIGTERM, 1),
        pytest.param(signal.SIGINT, 2, marks=[pytest.mark.slow, pytest.mark.ci]),
    ],
)
def test_interrupt_exits_with_130_and_leaves_no_files(
    tmp_path: Path, number: signal.Signals, workers: int
) -> None:
    text = 20 * random_text(100)
    (tmp_path / "text.txt").write_text(text * (1 + 3 * BLOCK_CHARACTERS // len(text)))
    (folder := tmp_path / "out").mkdir()
    arguments = ["prepare", tmp_path / "text.txt", "-o", folder / "data", "--workers", workers]
    with start(elmo, *arguments, pause=Pause(BLOCK_DONE, after=True)) as child:
        child.wait_for_pause()
        if workers > 1:  # as a terminal does: also to the workers, which exit silently
            os.killpg(child.pid, number)
        else:
            child.send_signal(number)
        assert child.wait() == 130
        assert "Interrupted" in child.stderr
        assert "Traceback" not in child.stderr
    assert list(folder.iterdir()) == []


def test_help_imports_neither_numpy_nor_torch() -> None:
    code = (
        "import sys, elmokit.cli.prepare; "
        "sys.exit(', '.join({'numpy', 'torch', 'tqdm', 'multiprocessing'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr.strip() == ""
