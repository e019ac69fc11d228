"""Errors and interrupts of the command line."""

from __future__ import annotations

import importlib.metadata
import inspect
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from elmokit.cli.main import app
from tests.cli.conftest import Elmo
from tests.conftest import TINY_MODEL
from tests.process_utils import HANG_SECONDS

PROGRAM = "from elmokit.cli.main import run; run()"


def elmo(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        **options,  # type: ignore[call-overload]
    )


def test_usage_errors_exit_with_2_and_missing_models_with_1(shell: Elmo) -> None:
    assert shell("embed")[0] == 2
    assert shell("nonsense")[0] == 2
    done = elmo("info", "no-such-model")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "Traceback" not in done.stderr


def test_invalid_choice_lists_the_choices(shell: Elmo) -> None:
    code, _, errors = shell("convert", "english", "out", "--to", "onx")
    assert code == 2
    assert "Invalid value for '--to': 'onx' is not one of 'elmokit', 'hdf5', 'onnx'" in errors


def test_missing_input_is_reported_before_a_model_is_downloaded(
    shell: Elmo, tmp_path: Path
) -> None:
    code, _, errors = shell("embed", "no.txt", "-o", "o.npz", "--model", "nope")
    assert code == 1
    assert "no.txt" in errors
    code, _, errors = shell("embed", tmp_path, "-o", "o.npz")
    assert code == 1
    assert str(tmp_path) in errors


@pytest.mark.parametrize("device", ["mps", "meta", "nonsense", "cuda:99"])
def test_unavailable_device_is_an_error(shell: Elmo, tmp_path: Path, device: str) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    code, _, errors = shell("embed", "a.txt", "-o", "o.npz", "--device", device)
    assert code == 1
    assert device in errors


def test_gamma_without_a_mix_is_a_usage_error(shell: Elmo, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    assert shell("embed", "a.txt", "-o", "o.npz", "--gamma", "3")[0] == 2


def test_doctor_reports_versions_and_the_bundled_model(shell: Elmo) -> None:
    code, output, _ = shell("doctor", "--no-probe", "--json")
    assert code == 0
    report = json.loads(output)
    assert report["packages"]["torch"]
    assert report["bundled_model"].startswith("ok")
    declared = importlib.metadata.metadata("elmokit").get_all("Provides-Extra")
    assert set(report["extras"]) >= set(declared or []) - {"dev", "docs"}
    assert all(extra["enables"] for extra in report["extras"].values())
    assert report["extras"]["search"]["packages"].keys() == {"pylance", "pyarrow"}
    shown = shell("doctor", "--no-probe")[1]
    assert "torch" in shown
    assert "pylance" in shown


def test_dash_is_rejected_as_output_path(shell: Elmo, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a\n")
    for arguments in (
        ("embed", "a.txt", "-o", "-"),
        ("prepare", "a.txt", "-o", "-"),
        ("train", tmp_path, "-o", "-"),
        ("finetune", "english", tmp_path, "-o", "-"),
        ("convert", "english", "-"),
        ("warm", "english", "a.txt", "-o", "-"),
        ("index", "a.txt", "-o", "-"),
        ("task", "ner", "train", "a.txt", "a.txt", "-o", "-"),
    ):
        code, _, errors = shell(*arguments)
        assert code == 2, (arguments, errors)
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.txt"]


def test_closed_standard_input_is_an_error_without_a_traceback() -> None:
    for words in ("embed - -o v.npz", "score -", "perplexity -", "prepare - -o data"):
        command = f'"{sys.executable}" -c "{PROGRAM}" {words} <&-'
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
        assert "Traceback" not in done.stderr
        assert "NoneType" not in done.stderr


def test_unwritable_standard_output_is_an_error_without_a_traceback() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    with full.open("w") as out:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, "info"], stdout=out, stderr=subprocess.PIPE, check=False
        )
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


def test_encoding_that_cannot_print_the_result_is_an_error_without_a_traceback(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "\u2192"
    latin_1 = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    done = elmo("convert", str(TINY_MODEL), str(folder), env=latin_1)
    assert done.returncode == 1
    assert done.stderr.startswith("Error: Cannot print '\\u2192' in the encoding latin-1.")
    assert elmo("info", str(folder)).returncode == 0


def test_closed_standard_error_does_not_stop_a_command(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("I read it .\n")
    words = f'embed text.txt -o v.npz --model "{TINY_MODEL}"'
    command = f'"{sys.executable}" -c "{PROGRAM}" {words} 2>&-'
    done = subprocess.run(command, shell=True, cwd=tmp_path, check=False)
    assert done.returncode == 0
    assert (tmp_path / "v.npz").exists()


# Pauses during the import of torch.
PAUSING = """
import sys

class Pause:
    def find_spec(self, name, path=None, target=None):
        if name == "torch.nn":
            print("importing", flush=True)
            sys.stdin.readline()

sys.meta_path.insert(0, Pause())
from elmokit.cli.main import run
run()
"""


@pytest.mark.parametrize(
    "number",
    [signal.SIGINT, pytest.param(signal.SIGTERM, marks=[pytest.mark.slow, pytest.mark.ci])],
)
def test_interrupt_during_imports_exits_with_130_and_a_message(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PAUSING, "doctor"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    _, errors = process.communicate("go on\n", timeout=HANG_SECONDS)
    assert process.returncode == 130, errors
    assert errors.strip() == "Interrupted."


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        ("KeyboardInterrupt", 130, "Interrupted."),
        ("MemoryError", 1, "Error: Not enough memory: an allocation failed."),
        (
            "RuntimeError('CUDA out of memory.\\nDetails')",
            1,
            "Error: Not enough memory: CUDA out of memory.",
        ),
        ("RuntimeError('illegal memory access')", 1, "Traceback"),
    ],
)
def test_interrupts_and_memory_errors_have_no_traceback(
    error: str, code: int, message: str
) -> None:
    program = f"import elmokit.cli.main as m\ndef app(): raise {error}\nm.app = app\nm.run()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert done.stderr.strip() == message or (message == "Traceback" and message in done.stderr)


def commands(group: Any, *path: str) -> Iterator[tuple[str, ...]]:
    """Yield the names of all commands and groups of commands."""
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, *path, name)


def test_all_parameters_have_help_texts_and_all_help_texts_have_parameters() -> None:
    group: Any = typer.main.get_command(app)
    for path in commands(group):
        command = group
        for name in path:
            command = command.commands[name]
        shown = [p for p in command.params if not p.hidden]
        assert all(p.help for p in shown if p.name != "help"), path
        assert "Args:" not in (command.help or "")
        _, _, described = (inspect.getdoc(command.callback) or "").partition("\nArgs:\n")
        assert set(re.findall(r"^    (\w+):", described, re.MULTILINE)) <= {p.name for p in shown}


def test_help_fits_80_columns_without_truncation(
    shell: Elmo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for command in commands(typer.main.get_command(app)):
        code, output, _ = shell(*command, "--help")
        assert code == 0
        assert all(len(line) <= 80 for line in output.splitlines()), command
        assert not re.search(
            r"<(bool|str|int|float|path|list)|[{}]|\\\[|\N{HORIZONTAL ELLIPSIS}", output
        )
        assert not re.search(r"\w\.\.\.$", output.split("\n\n", 1)[1], re.MULTILINE), (
            command
        )  # a truncated summary
    assert "Embed and search:\n  embed " in shell("--help")[1]
