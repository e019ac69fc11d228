"""Locks between real processes, which may be killed while they hold one."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elmokit import locking
from elmokit.errors import OutputError
from elmokit.locking import (
    RUNNING,
    check_not_running,
    file_lock,
    folder_lock,
    is_held,
    running,
)

HOLDING = """
import sys, time
from pathlib import Path
from elmokit.locking import running
with running(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


def count_up(kind: str, folder: Path, times: int) -> None:
    """Add to a number in a file, which goes wrong if another does so at the same time."""
    for _ in range(times):
        with folder_lock(folder) if kind == "folder" else file_lock(folder / "a.lock"):
            number = int((folder / "number").read_text())
            time.sleep(0.0005)
            (folder / "number").write_text(str(number + 1))


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_processes_take_turns(tmp_path: Path, kind: str) -> None:
    (tmp_path / "number").write_text("0")
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=count_up, args=(kind, tmp_path, 100)) for _ in range(4)]
    for process in started:
        process.start()
    for process in started:
        process.join(120)
        assert process.exitcode == 0
    assert (tmp_path / "number").read_text() == "400"
    assert [path.name for path in tmp_path.iterdir()] == ["number"]


def test_a_run_keeps_others_out_until_it_ends_or_is_killed(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "run"
    check_not_running(folder)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDING, str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    for refused in (lambda: check_not_running(folder), lambda: running(folder).__enter__()):
        with pytest.raises(OutputError, match="Another process is at work in"):
            refused()
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert (folder / RUNNING).exists()
    check_not_running(folder)
    with running(folder):
        assert is_held(folder / RUNNING)
    assert not list(folder.iterdir())


def test_an_error_within_is_not_taken_for_a_lock(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), running(tmp_path):
        raise BlockingIOError
    assert not (tmp_path / RUNNING).exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_copy_of_the_process_does_not_keep_the_lock(tmp_path: Path) -> None:
    read, write = os.pipe()
    with file_lock(tmp_path / "a.lock"), folder_lock(tmp_path):
        child = os.fork()
        if child == 0:
            os.read(read, 1)
            os._exit(0)
    try:
        assert not is_held(tmp_path / "a.lock")
        with folder_lock(tmp_path), file_lock(tmp_path / "a.lock", wait=False):
            pass
    finally:
        os.write(write, b"x")
        os.waitpid(child, 0)


def test_a_folder_that_a_script_holds_is_not_waited_for_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locking, "_PATIENCE_SECONDS", 0.2)
    with folder_lock(tmp_path), pytest.raises(OutputError, match="locked by another program"):
        folder_lock(tmp_path).__enter__()
    with folder_lock(tmp_path):
        pass


@pytest.mark.parametrize("error", [errno.ENOLCK, errno.EBADF, errno.ENOSYS])
def test_where_there_are_no_locks_all_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    def flock(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(locking.fcntl, "flock", flock)
    (tmp_path / RUNNING).touch()  # left by a kill
    check_not_running(tmp_path)
    for _ in range(2):
        with running(tmp_path), folder_lock(tmp_path), file_lock(tmp_path / "a.lock") as held:
            assert not held
    assert not list(tmp_path.iterdir())
    (tmp_path / RUNNING).touch()
    assert is_held(tmp_path / RUNNING)  # may be
    assert not is_held(tmp_path / RUNNING, unknown=False)


def test_a_folder_that_is_begun_anew_keeps_its_own_lock(tmp_path: Path) -> None:
    with running(tmp_path / "run"):
        (tmp_path / "run").rename(tmp_path / "old")
        second = running(tmp_path / "run")
        second.__enter__()
    check = is_held(tmp_path / "run" / RUNNING)
    second.__exit__(None, None, None)
    assert check
    assert not (tmp_path / "run" / RUNNING).exists()


def test_a_folder_that_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="something else stands at that path"):
        running(tmp_path / "file" / "run").__enter__()
