from __future__ import annotations

from pathlib import Path

import pytest

from elmokit.atomic import replacing
from elmokit.errors import OutputError


def test_the_old_file_stands_until_the_new_one_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), replacing(path) as temporary:
        temporary.write_text(f"half {1 / 0}")
    assert path.read_text() == "old"
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_folders_are_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder"
    for text in ("one", "two"):
        with replacing(path, directory=True) as temporary:
            (temporary / text).write_text(text)
    assert [p.name for p in path.iterdir()] == ["two"]
    assert list(path.parent.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_our_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(OutputError, match="Cannot write"), replacing(tmp_path / "file" / "x"):
        pass
