"""Token indexes whose building was stopped, gently or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import elmokit
from elmokit.bulk.work import work_path
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, DataError, OutputError
from elmokit.search.index import TokenIndex
from elmokit.search.index_build import (
    IndexSettings,
    build_index,
    kept_tokens,
)
from elmokit.search.index_files import META, IndexMeta
from tests.conftest import TINY_MODEL
from tests.process_utils import Pause, kill_when
from tests.search.conftest import TOKENIZED

# Where the runs below are killed.
COMMIT = "elmokit.search.index_growing.Growing.commit"
FINISH = "elmokit.bulk.work.WorkDirectory.finish"


def files_of(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in folder.iterdir() if p.name != META}


def test_an_interrupted_build_goes_on_and_gives_the_same_bytes(
    elmo: ElmoModel, folder: Path, index: TokenIndex, tmp_path: Path
) -> None:
    text, out = folder / "text.txt", tmp_path / "i"
    calls = 0

    def stop(_: Any) -> None:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            raise KeyboardInterrupt

    for _ in range(30):
        try:
            done = build_index(elmo, [text], out, TOKENIZED, resume=True, on_progress=stop)
            break
        except KeyboardInterrupt:
            assert not out.exists()
            assert kept_tokens(out) > 0
            with pytest.raises(OutputError, match="--resume"):
                build_index(elmo, [text], out, TOKENIZED)
            other = IndexSettings(tokenized=True, part_tokens=100, numbers="int8")
            with pytest.raises(ConfigError, match="numbers was"):
                build_index(elmo, [text], out, other, resume=True)
    assert done.resumed_tokens > 0
    assert files_of(out) == files_of(index.folder)
    assert not work_path(out).exists()
    assert IndexMeta.read(out) == index.meta


def test_a_build_that_was_cut_short_refuses_another_text(
    elmo: ElmoModel, folder: Path, tmp_path: Path
) -> None:
    text = tmp_path / "text.txt"
    text.write_text((folder / "text.txt").read_text())
    seen: list[int] = []

    def stop(progress: Any) -> None:
        seen.append(progress.tokens)
        if len(seen) == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_index(elmo, [text], tmp_path / "i", TOKENIZED, on_progress=stop)
    text.write_text("another beginning\n" + text.read_text())
    with pytest.raises(DataError, match="not what the interrupted"):
        build_index(elmo, [text], tmp_path / "i", TOKENIZED, resume=True)
    build_index(elmo, [text], tmp_path / "i", TOKENIZED, overwrite=True)
    assert not work_path(tmp_path / "i").exists()


def build(text: Path, out: Path) -> None:
    model = elmokit.load(TINY_MODEL, device="cpu")
    build_index(model, [text], out, TOKENIZED, resume=True)


def test_kill_9_loses_nothing(folder: Path, index: TokenIndex, tmp_path: Path) -> None:
    out = tmp_path / "i"
    kept = [0]
    for point in (
        Pause(COMMIT, call=2, after=True),
        Pause(COMMIT, call=2),  # arrays have grown, and nothing says so yet
        Pause(FINISH),
    ):
        assert kill_when(point, build, folder / "text.txt", out)
        assert not out.exists()
        kept.append(kept_tokens(out))
    assert 0 < kept[1] < kept[2] < kept[3] == index.tokens
    build(folder / "text.txt", out)
    assert files_of(out) == files_of(index.folder)
    assert [p.name for p in tmp_path.iterdir()] == ["i"]
