"""Run commands in this process, as from a shell."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from elmokit.cli.main import run

#: Runs a command with its arguments; returns the exit code, stdout and stderr.
Elmo = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Elmo:
    """Run `elmo` in the directory of the test."""

    def command(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["elmo", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            run()
        output, errors = capsys.readouterr()
        return int(ended.value.code or 0), output, errors

    return command
