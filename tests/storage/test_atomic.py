"""Atomic writes by real processes that are killed at the worst moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from elmokit.errors import OutputError
from elmokit.storage.atomic import (
    replace_directory,
    replace_file,
    restore_directories,
    restore_directory,
)
from elmokit.storage.lock import run_lock
from tests.process_utils import Pause, kill_when

# The first rename moves the old directory away, the second one moves the new one in.
BEFORE, BETWEEN, AFTER = (
    Pause("pathlib.Path.rename", call=1),
    Pause("pathlib.Path.rename", call=2),
    Pause("pathlib.Path.rename", call=2, after=True),
)


def replace(path: Path) -> None:
    with replace_directory(path) as temporary:
        (temporary / "file").write_text("new")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "directory"
    path.mkdir()
    (path / "file").write_text("old")
    return path


def test_file_is_kept_until_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replace_file(path) as temporary:
        temporary.write_text(f"half {1 / 0}")
    assert path.read_text() == "old"
    with replace_file(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_directory_is_replaced_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "directory"
    for text in ("one", "two"):
        with replace_directory(path) as temporary:
            (temporary / text).write_text(text)
    assert [p.name for p in path.iterdir()] == ["two"]
    with pytest.raises(ZeroDivisionError), replace_directory(path) as temporary:
        (temporary / "three").write_text(f"{1 / 0}")
    assert [p.name for p in path.iterdir()] == ["two"]
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(
    ("moment", "expected"), [(BEFORE, "old"), (BETWEEN, "old"), (AFTER, "new")]
)
def test_kill_during_a_replacement_loses_nothing(path: Path, moment: Pause, expected: str) -> None:
    assert kill_when(moment, replace, path)
    assert path.exists() == (moment != BETWEEN)
    restore_directory(path)
    assert (path / "file").read_text() == expected
    replace(path)  # and nothing blocks the next replacement
    assert (path / "file").read_text() == "new"
    assert {p.suffix for p in path.parent.iterdir()} <= {"", ".tmp"}


def test_killed_replacement_is_restored_before_the_next_one(path: Path) -> None:
    assert kill_when(BETWEEN, replace, path)

    def check() -> None:
        if path.exists():
            raise OutputError("not without asking")

    with (
        pytest.raises(OutputError, match="not without asking"),
        replace_directory(path, check=check),
    ):
        pass
    assert (path / "file").read_text() == "old"


def test_all_directories_in_a_directory_are_restored(tmp_path: Path) -> None:
    for name in ("a", "b.c"):
        (tmp_path / name).mkdir()
        assert kill_when(BETWEEN, replace, tmp_path / name)
    restore_directories(tmp_path)
    assert {p.name for p in tmp_path.iterdir() if p.suffix != ".tmp"} == {"a", "b.c"}


def test_reader_always_finds_a_complete_directory(tmp_path: Path) -> None:
    path = tmp_path / "directory"

    def write(text: str) -> None:
        for _ in range(20):
            with replace_directory(path) as temporary:
                (temporary / "file").write_text(text)

    write("0")
    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write, text) for text in "12"]
        while not all(writer.done() for writer in writers):
            restore_directory(path)
            with suppress(FileNotFoundError):  # the next replacement may start at any time
                assert (path / "file").read_text() in "012"
        for writer in writers:
            writer.result()
    assert (path / "file").read_text() in "12"
    assert list(tmp_path.iterdir()) == [path]


def test_only_one_of_two_processes_creates_a_new_directory(tmp_path: Path) -> None:
    path = tmp_path / "directory"

    def check() -> None:
        if path.exists():
            raise OutputError("another process made it")

    def make_twice() -> None:
        with replace_directory(path, check=check) as first:
            (first / "file").write_text("first")
            with replace_directory(path, check=check) as second:
                (second / "file").write_text("second")

    with pytest.raises(OutputError, match="another process"):
        make_twice()
    assert (path / "file").read_text() == "second"
    assert list(tmp_path.iterdir()) == [path]


def test_symbolic_link_is_kept_when_its_directory_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    assert kill_when(BETWEEN, replace, tmp_path / "link")
    restore_directory(tmp_path / "link")
    with replace_directory(tmp_path / "link") as temporary:
        (temporary / "file").touch()
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real" / "file").exists()


def test_unwritable_path_is_an_elmo_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for write in (replace_file, replace_directory):
        with pytest.raises(OutputError, match="Cannot write"), write(tmp_path / "file" / "x"):
            pass


@pytest.mark.parametrize("name", ["a\0b", "loop", "a" * 300])
def test_invalid_path_is_an_output_error(name: str, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutputError), replace_directory(tmp_path / name):
        pass
    with pytest.raises(OutputError), replace_file(tmp_path / name / "x"):
        pass
    with pytest.raises(OutputError), run_lock(tmp_path / name):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["loop"]
