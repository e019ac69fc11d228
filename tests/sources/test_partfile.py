"""Downloads by several processes, and by processes that are killed."""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from elmokit.errors import DownloadError
from elmokit.sources.download import fetch
from tests.process_utils import Child, Pause, start
from tests.sources.server import CONTENT, Server, answer, status
from tests.sources.test_download import check_complete, get

# Where the downloads below pause.
APPEND = "elmokit.sources.partfile.PartFile.append"
WAIT = "logging.Logger.warning"  # of a process that waits for another


def download(server: Server, target: Path, pause: Pause | None) -> AbstractContextManager[Child]:
    return start(fetch, f"{server.url}/w.hdf5", target, pause=pause)


def test_processes_that_want_the_same_file_fetch_it_once(server: Server, target: Path) -> None:
    with download(server, target, Pause(APPEND)) as first:
        first.wait_for_pause()
        with (
            download(server, target, Pause(WAIT)) as second,
            download(server, target, Pause(WAIT)) as third,
        ):
            for child in (second, third):
                child.wait_for_pause()
                child.resume()
            first.resume()
            for child in (first, second, third):
                assert child.wait() == 0, child.stderr
    check_complete(target)
    assert server.sent == len(CONTENT)


def test_after_a_kill_the_rest_is_fetched(server: Server, target: Path) -> None:
    with download(server, target, Pause(APPEND, call=3)) as child:
        child.wait_for_pause()
        child.kill()
    kept = target.with_name("w.hdf5.part").stat().st_size
    assert 0 < kept < len(CONTENT)
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
