"""Locks between real processes, which may be killed while they hold one."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from elmokit.errors import OutputError
from elmokit.storage.lock import RUN_LOCK, file_lock, run_lock
from tests.process_utils import HANG_SECONDS

HOLD = """
import sys
from pathlib import Path
from elmokit.storage.lock import run_lock
with run_lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def count_up(directory: Path, times: int) -> None:
    """Increment a number in a file, which loses updates without mutual exclusion."""
    for _ in range(times):
        with file_lock(directory / "a.lock"):
            number = int((directory / "number").read_text())
            (directory / "number").write_text(str(number + 1))


def test_processes_take_turns(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=count_up, args=(tmp_path, 100)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(HANG_SECONDS)
        assert process.exitcode == 0
    assert (tmp_path / "number").read_text() == "300"
    assert [path.name for path in tmp_path.iterdir()] == ["number"]


def try_to_run(directory: Path, tried: Any, results: Any) -> None:
    tried.wait()
    try:
        with run_lock(directory):
            results.put("runs")
            tried.wait()  # until all others have tried
    except OutputError:
        results.put("refused")
        tried.wait()


def test_exactly_one_of_several_concurrent_runs_proceeds(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    tried, results = context.Barrier(3, timeout=HANG_SECONDS), context.Queue()
    processes = [
        context.Process(target=try_to_run, args=(tmp_path / "run", tried, results))
        for _ in range(3)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(HANG_SECONDS)
        assert process.exitcode == 0
    assert sorted(results.get(timeout=HANG_SECONDS) for _ in processes) == [
        "refused",
        "refused",
        "runs",
    ]


def test_run_lock_is_held_until_the_process_exits_or_is_killed(tmp_path: Path) -> None:
    directory = tmp_path / "new" / "run"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    with pytest.raises(OutputError, match="in use by another process"):
        run_lock(directory).__enter__()
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert (directory / RUN_LOCK).exists()  # which does not lock out anyone
    with run_lock(directory), pytest.raises(OutputError, match="in use by another process"):
        run_lock(directory).__enter__()
    assert not list(directory.iterdir())


def test_error_inside_the_lock_is_not_reported_as_a_lock_error(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError), run_lock(tmp_path):
        raise TimeoutError
    with run_lock(tmp_path):
        pass


@pytest.mark.parametrize("error", [errno.ENOSYS, errno.ENOLCK])
def test_file_systems_without_locks_are_supported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, caplog: pytest.LogCaptureFixture
) -> None:
    def flock(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / RUN_LOCK).touch()  # left by a killed process
    for _ in range(2):  # no soft lock is left
        with run_lock(tmp_path), file_lock(tmp_path / "a.lock") as held:
            assert not held
    assert "does not support locks" in caplog.text
    assert not list(tmp_path.iterdir())


def test_directory_that_cannot_be_created_is_an_elmo_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="Cannot write"):
        run_lock(tmp_path / "file" / "run").__enter__()
