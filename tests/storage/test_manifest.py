from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from elmokit.errors import ConfigError, DataError
from elmokit.storage.manifest import check_format, read_json, write_json


def test_round_trip(tmp_path: Path) -> None:
    values = {"name": "Größe", "numbers": [1, 2.5, None], "nested": {"a": "\ud800"}}
    write_json(tmp_path / "deep" / "a.json", values)
    assert read_json(tmp_path / "deep" / "a.json") == values
    (tmp_path / "b.json").write_text('{"with": "byte order mark"}', "utf-8-sig")
    assert read_json(tmp_path / "b.json") == {"with": "byte order mark"}


@pytest.mark.parametrize(
    "content", [b"", b'{"half": ', b"[1]", b"null", b'{"a": "\xff"}', b"[" * 100_000]
)
def test_error_for_a_damaged_file_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    (path := tmp_path / "a.json").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.json .* Make it again\.$"):
        read_json(path, error=DataError, hint="Make it again.")


def test_missing_file_and_directory_are_identified(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(ConfigError, match=str(path)):
            read_json(path)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"format_version": 1}, "'format' should be 'x', found None"),
        ({"format": "y", "format_version": 1}, "'format' should be 'x', found 'y'"),
        ({"format": "x"}, "'format_version' should be 2 to 3, found None"),
        ({"format": "x", "format_version": "2"}, "'format_version' should be 2 to 3, found '2'"),
        ({"format": "x", "format_version": True}, "'format_version' should be 2 to 3, found True"),
        ({"format": "x", "format_version": 1}, "'format_version' should be 2 to 3, found 1"),
        ({"format": "x", "format_version": 4}, "newer elmokit"),
    ],
)
def test_other_format_or_version_is_rejected(values: dict[str, Any], named: str) -> None:
    with pytest.raises(DataError, match=named):
        check_format(values, "a.json", "x", 3, oldest=2, error=DataError)


def test_known_versions_are_accepted() -> None:
    for version in (1, 2):
        check_format({"format": "x", "format_version": version}, "a.json", "x", 2)


def test_named_pipe_and_nul_in_the_path_are_elmo_errors(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / "a\0b"):
        with pytest.raises(ConfigError):
            read_json(path)


def test_huge_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.touch()
    os.truncate(path, 2**40)  # sparse: takes no disk space
    with pytest.raises(ConfigError, match=r"1,099,511,627,776 bytes; the limit is"):
        read_json(path)
