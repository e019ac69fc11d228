"""Downloads from a server that breaks connections, changes files, stalls and fails."""

from __future__ import annotations

import random
import socket
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from elmokit.errors import DownloadError, OutputError
from elmokit.sources import download
from elmokit.sources.download import cache_dir, cached_path, fetch
from tests.process_utils import Child, Pause, start
from tests.sources.server import CONTENT, Server, answer, hang_up, status

OTHER = random.Random(1).randbytes(300_000)


def get(
    server: Server, target: Path, *, tries: int = 5, wait: float = 0.01, timeout: float = 5.0
) -> Path:
    with mock.patch.multiple(download, _MAX_ATTEMPTS=tries, _RETRY_DELAY=wait, _TIMEOUT=timeout):
        return fetch(f"{server.url}/w.hdf5", target)


def leave_a_part(server: Server, target: Path, stop_after: int = 100_000, **kind: Any) -> None:
    """Interrupt a first download after some bytes."""
    server.plan = [answer(stop_after=stop_after, **kind), hang_up]
    with pytest.raises(DownloadError):
        get(server, target, tries=1)
    server.requests.clear()
    server.plan.clear()


def check_complete(target: Path, content: bytes = CONTENT) -> None:
    assert target.read_bytes() == content
    assert [entry.name for entry in target.parent.iterdir()] == [target.name]


def test_download_is_complete_and_leaves_no_other_files(server: Server, target: Path) -> None:
    assert get(server, target) == target
    check_complete(target)


def test_existing_file_is_not_downloaded_again(server: Server, target: Path) -> None:
    get(server, target)
    get(server, target)
    assert len(server.requests) == 1


def test_empty_file_is_downloaded(server: Server, target: Path) -> None:
    server.files["/w.hdf5"] = b""
    get(server, target)
    check_complete(target, b"")


@pytest.mark.parametrize("kind", [{"chunked": True}, {"length": False}], ids=str)
def test_file_of_unknown_length_is_downloaded(
    server: Server, target: Path, kind: dict[str, Any]
) -> None:
    server.usual = answer(**kind)
    get(server, target)
    check_complete(target)


# ----------------------------------------------------------------------------------------- resuming


def test_broken_connection_is_resumed(server: Server, target: Path) -> None:
    server.plan = [answer(stop_after=100_000), answer(stop_after=150_000)]
    get(server, target)
    check_complete(target)
    assert server.ranges() == [None, "bytes=100000-", "bytes=250000-"]
    assert server.sent == len(CONTENT)


def test_later_call_resumes_an_earlier_one(server: Server, target: Path) -> None:
    leave_a_part(server, target)
    get(server, target)
    check_complete(target)
    assert server.ranges() == ["bytes=100000-"]


def test_server_without_ranges_restarts_the_download(server: Server, target: Path) -> None:
    server.plan = [answer(stop_after=100_000)]
    server.usual = answer(ranges=False)
    get(server, target)
    check_complete(target)


def test_server_without_ranges_that_always_breaks_is_given_up(server: Server, target: Path) -> None:
    server.usual = answer(ranges=False, stop_after=100_000)
    with pytest.raises(DownloadError, match=r"closed 200,000 bytes .*\(after 3 attempts\)"):
        get(server, target, tries=3)
    assert len(server.requests) == 4


@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"if_range": False},
        {"etag": False, "modified": "Wed, 21 Oct 2015 07:28:00 GMT"},
    ],
    ids=["by If-Range", "by ETag of the answer", "by date"],
)
def test_changed_file_is_downloaded_from_the_start(
    server: Server, target: Path, kind: dict[str, Any]
) -> None:
    leave_a_part(server, target, **kind)
    server.files["/w.hdf5"] = OTHER
    if "modified" in kind:
        kind = kind | {"modified": "Thu, 22 Oct 2015 07:28:00 GMT"}
    server.usual = answer(**kind)
    get(server, target)
    check_complete(target, OTHER)
    assert server.ranges()[0] == "bytes=100000-"


@pytest.mark.parametrize("size", [50_000, 100_000, 200_000])
def test_file_with_a_changed_length_is_downloaded_from_the_start(
    server: Server, target: Path, size: int
) -> None:
    leave_a_part(server, target, etag=False)
    server.files["/w.hdf5"] = OTHER[:size]
    server.usual = answer(etag=False)
    get(server, target)
    check_complete(target, OTHER[:size])


def test_download_without_a_length_or_version_is_not_resumed(server: Server, target: Path) -> None:
    leave_a_part(server, target, etag=False, chunked=True)
    server.files["/w.hdf5"] = OTHER
    server.usual = answer(etag=False)
    get(server, target)
    check_complete(target, OTHER)


def test_partial_download_of_another_url_is_not_resumed(server: Server, target: Path) -> None:
    leave_a_part(server, target)
    server.files["/mirror/w.hdf5"] = OTHER
    fetch(f"{server.url}/mirror/w.hdf5", target)
    check_complete(target, OTHER)
    assert server.ranges() == [None]


@pytest.mark.parametrize("note", ["", "{", "[1]", '{"x": 1}'])
def test_partial_download_without_readable_metadata_is_restarted(
    server: Server, target: Path, note: str
) -> None:
    leave_a_part(server, target)
    target.with_name("w.hdf5.part.json").write_text(note)
    get(server, target)
    check_complete(target)
    assert server.ranges() == [None]


def test_completed_partial_download_is_restarted(server: Server, target: Path) -> None:
    leave_a_part(server, target)
    with target.with_name("w.hdf5.part").open("ab") as part:
        part.write(CONTENT[100_000:])
    get(server, target)
    check_complete(target)
    assert server.ranges() == [f"bytes={len(CONTENT)}-", None]


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("code", [500, 502, 503, 504, 429])
def test_busy_server_is_retried(server: Server, target: Path, code: int) -> None:
    server.plan = [status(code), status(code)]
    get(server, target)
    check_complete(target)


def test_permanent_server_errors_are_given_up(server: Server, target: Path) -> None:
    server.usual = status(503)
    with pytest.raises(DownloadError, match=r"returned 503 .*\(after 3 attempts\)"):
        get(server, target, tries=3)
    assert len(server.requests) == 3


@pytest.mark.parametrize("code", [401, 403, 404, 410])
def test_missing_file_is_reported_immediately(server: Server, target: Path, code: int) -> None:
    server.usual = status(code)
    with pytest.raises(DownloadError, match=f"returned {code}"):
        get(server, target)
    assert len(server.requests) == 1
    assert list(target.parent.iterdir()) == []


def test_connection_closed_without_an_answer_is_retried(server: Server, target: Path) -> None:
    server.plan = [hang_up, hang_up]
    get(server, target)
    check_complete(target)


def test_incomplete_chunked_answer_is_detected(server: Server, target: Path) -> None:
    server.plan = [answer(chunked=True, stop_after=100_000)]
    get(server, target)
    check_complete(target)


def test_stalled_download_is_aborted_and_resumed(server: Server, target: Path) -> None:
    server.plan = [answer(stall_after=100_000)]
    get(server, target, timeout=3.0)  # long enough for a busy machine to answer
    check_complete(target)
    assert server.ranges()[:2] == [None, "bytes=100000-"]


def test_server_that_never_answers_is_given_up(server: Server, target: Path) -> None:
    server.usual = lambda handler: handler.server.ending.wait(10) and None
    with pytest.raises(DownloadError, match="timed out"):
        get(server, target, timeout=0.1, tries=2)


def test_error_without_a_network_says_what_to_do(tmp_path: Path, target: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/w.hdf5"
        started = time.perf_counter()
        delay = mock.patch.object(download, "_RETRY_DELAY", 60)
        with delay, pytest.raises(DownloadError) as caught:
            fetch(url, target)
    assert time.perf_counter() - started < 30  # not retried, because that would not help
    message = str(caught.value)
    assert url in message
    assert f"copy it to {target}" in message


def test_partial_download_is_kept_and_reported(server: Server, target: Path) -> None:
    server.plan = [answer(stop_after=100_000)]
    server.usual = status(404)
    with pytest.raises(DownloadError, match="Saved 100,000 bytes"):
        get(server, target)


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://host/x", "w.hdf5", ""])
def test_only_http_is_supported(url: str, target: Path) -> None:
    with pytest.raises(DownloadError, match="Invalid URL"):
        fetch(url, target)


@pytest.mark.parametrize("name", ["w.hdf5", "options.json"])
@pytest.mark.parametrize("kind", [{}, {"chunked": True}, {"length": False}], ids=str)
def test_size_of_a_download_is_limited(
    server: Server, tmp_path: Path, name: str, kind: dict[str, Any]
) -> None:
    server.usual = answer(content=CONTENT, **kind)
    limits = {"_MAX_BYTES": 290_000, "_MAX_JSON_BYTES": 1_000}
    with mock.patch.multiple(download, **limits), pytest.raises(DownloadError, match="larger"):
        get(server, tmp_path / name)
    assert len(server.requests) == 1
    assert not any(file.stat().st_size > 1_000 for file in tmp_path.iterdir())


def test_insufficient_disk_space_is_detected_in_advance(server: Server, target: Path) -> None:
    def huge(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(10**18))
        handler.end_headers()

    server.usual = huge
    with pytest.raises(OutputError, match=r"000,000,000 bytes in .*ELMOKIT_HOME"):
        get(server, target)


def test_unwritable_path_is_an_error(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="file"):
        get(server, tmp_path / "file" / "w.hdf5")


# ------------------------------------------------------------------------------- progress and paths


def test_size_and_progress_go_to_stderr(
    server: Server, target: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    get(server, target)
    out, err = capfd.readouterr()
    assert out == ""
    assert "w.hdf5: 100%" in err
    assert "293k/293k" in err


def test_failed_download_shows_no_progress_bar(
    server: Server, target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.usual = status(404)
    with pytest.raises(DownloadError):
        fetch(server.url, target)
    assert capsys.readouterr().err == ""


def test_cache_directory_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMOKIT_HOME", "/somewhere")
    assert cache_dir() == Path("/somewhere")
    monkeypatch.delenv("ELMOKIT_HOME")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_dir() == Path("/home/me/.cache/elmokit")


def test_urls_cannot_lead_outside_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELMOKIT_HOME", "/cache")
    assert cached_path("https://a.b/c/d.zip") == Path("/cache/web/a.b/c/d.zip")
    strange = "https://a.b/../%2e%2e/x%2f..%2fy?q=/../z"
    assert cached_path(strange) == Path("/cache/web/a.b/x/q__.._z/y")


# -------------------------------------------------------------------------------- several processes

# Calls at which the downloads below pause.
RECEIVED = "tqdm.std.tqdm.update"  # after each piece
WAIT = "logging.Logger.warning"  # of a process that waits for another


def start_download(
    server: Server, target: Path, pause: Pause | None
) -> AbstractContextManager[Child]:
    return start(fetch, f"{server.url}/w.hdf5", target, pause=pause)


def test_concurrent_processes_download_a_file_once(server: Server, target: Path) -> None:
    with start_download(server, target, Pause(RECEIVED)) as first:
        first.wait_for_pause()
        with (
            start_download(server, target, Pause(WAIT)) as second,
            start_download(server, target, Pause(WAIT)) as third,
        ):
            for child in (second, third):
                child.wait_for_pause()
                child.resume()
            first.resume()
            for child in (first, second, third):
                assert child.wait() == 0, child.stderr
    check_complete(target)
    assert server.sent == len(CONTENT)


def test_download_resumes_after_a_kill(server: Server, target: Path) -> None:
    with start_download(server, target, Pause(RECEIVED)) as child:
        child.wait_for_pause()
        child.kill()
    kept = target.with_name("w.hdf5.part").stat().st_size
    assert 0 < kept < len(CONTENT)
    get(server, target)
    check_complete(target)
    assert server.ranges() == [None, f"bytes={kept}-"]


@pytest.mark.parametrize("url", ["http://a..b/x", "http://127.0.0.1:1/\u00e9", "http://[::1/x"])
def test_an_invalid_url_is_an_error(url: str, target: Path) -> None:
    """A server can redirect to any of these."""
    with pytest.raises(DownloadError, match=r"nvalid URL"):
        fetch(url, target)
    if "[" in url:
        with pytest.raises(DownloadError, match="Invalid URL"):
            cached_path(url)


def test_an_invalid_length_is_an_error(server: Server, target: Path) -> None:
    def invalid(handler: Any) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n")

    server.usual = invalid
    with pytest.raises(DownloadError, match="invalid URL or response"):
        get(server, target)
