"""Downloads by several processes, and by processes that are killed."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from elmokit.errors import DownloadError
from elmokit.sources import partfile
from tests.sources.server import CONTENT, Server, answer, status
from tests.sources.test_download import check_complete, get

_SCRIPT = """
import sys
from pathlib import Path
from elmokit.sources.download import fetch
fetch(sys.argv[1], Path(sys.argv[2]), progress=False)
"""


def start(server: Server, target: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", _SCRIPT, f"{server.url}/w.hdf5", str(target)]
    source = Path(partfile.__file__).parents[2]
    return subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(source)})


def test_processes_that_want_the_same_file_fetch_it_once(server: Server, target: Path) -> None:
    server.usual = answer(pace=0.1)
    processes = [start(server, target) for _ in range(3)]
    assert [process.wait(120) for process in processes] == [0, 0, 0]
    check_complete(target)
    assert server.sent == len(CONTENT)


def test_after_a_kill_the_rest_is_fetched(server: Server, target: Path) -> None:
    server.plan = [answer(stall_after=200_000)]
    process = start(server, target)
    part = target.with_name("w.hdf5.part")
    deadline = time.monotonic() + 120
    while not (part.exists() and part.stat().st_size >= 190_000):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = part.stat().st_size
    get(server, target)
    check_complete(target)
    assert server.ranges() == [None, f"bytes={kept}-"]


def test_without_locks_every_process_has_its_own_part(
    server: Server, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(fcntl, "flock", flock)
    server.plan = [answer(stop_after=1000), status(404)]
    with pytest.raises(DownloadError):
        get(server, target)
    assert list(target.parent.iterdir()) == []
    get(server, target)
    check_complete(target)
