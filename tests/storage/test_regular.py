from __future__ import annotations

import os
from pathlib import Path

import pytest

from elmokit.errors import DataError
from elmokit.storage.regular import check_regular_files


def test_named_pipes_are_found_in_three_levels_only(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "a" / "b" / "c" / "pipe")
    check_regular_files(tmp_path, DataError)  # may be any directory: it is not searched completely
    for place in ("a/b/pipe", "a/pipe", "pipe"):
        os.mkfifo(tmp_path / place)
        with pytest.raises(DataError, match="pipe is not a regular file"):
            check_regular_files(tmp_path, DataError)
        (tmp_path / place).unlink()
    check_regular_files(tmp_path / "nowhere", DataError)
