"""Directories of shards: identical files for any number of processes and interruptions."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elmokit.bulk.executors import Workers
from elmokit.bulk.input import Chunk, Passage
from elmokit.bulk.job import ChunkJob
from elmokit.bulk.ray_engine import RayCluster
from elmokit.bulk.run import embed_corpus
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.shards import ShardDirectory
from elmokit.embed.model import ElmoModel
from elmokit.errors import (
    ConfigError,
    DataError,
    DependencyError,
    ElmoError,
    ElmoWarning,
    OutputError,
)
from elmokit.progress import Progress
from elmokit.sources.modeldir import ModelParts, save
from tests.bulk.runs import TEXT, Stopped, names, stop_after
from tests.conftest import TINY, random_bilm

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SETTINGS = EmbedSettings(chunk_bytes=60)
LINES = TEXT.split("\n")[:-1]


@pytest.fixture
def documents(tmp_path: Path) -> list[Path]:
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "empty.txt").write_text("")
    pq.write_table(pa.table({"text": LINES * 2}), tmp_path / "b.parquet")
    return [tmp_path / "a.txt", tmp_path / "empty.txt", tmp_path / "b.parquet"]


@pytest.fixture
def make(elmo: ElmoModel, documents: list[Path], tmp_path: Path) -> Callable[..., Any]:
    """Write the directory with the given name."""

    def embed(name: str, **options: Any) -> Any:
        values = {"settings": SETTINGS, **options}
        return embed_corpus(elmo, documents, tmp_path / name, **values)

    return embed


def assert_same_files(one: Path, other: Path) -> None:
    assert names(one) == names(other)
    for name in names(one):
        assert (one / name).read_bytes() == (other / name).read_bytes(), name


def test_rows_are_tokens_with_positions_and_vectors(
    elmo: ElmoModel, make: Callable[..., Any], documents: list[Path], tmp_path: Path
) -> None:
    summary = make("out", settings=EmbedSettings(split=True, chunk_bytes=60))
    listed = json.loads((tmp_path / "out" / "shards.json").read_text())["shards"]
    rows = [row for s in listed for row in pq.read_table(tmp_path / "out" / s["shard"]).to_pylist()]
    assert len(rows) == summary.tokens == sum(s["tokens"] for s in listed)
    assert {row["document"] for row in rows} == {str(documents[0]), str(documents[2])}
    lines = {str(documents[0]): LINES, str(documents[2]): LINES * 2}
    for row in rows:
        assert lines[row["document"]][row["line"] - 1][row["start"] : row["end"]] == row["token"]
    played = [r for r in rows if r["document"] == str(documents[0]) and r["line"] == 8]
    assert [(r["sentence"], r["token_index"], r["token"]) for r in played] == [
        *((0, i, t) for i, t in enumerate(["The", "play", "was", "long", "."])),
        *((1, i, t) for i, t in enumerate(["It", "was", "good", "."])),
    ]
    expected = elmo.embed("It was good.").layers
    for j in range(3):
        found = np.array([r[f"layer_{j}"] for r in played[5:]], dtype=np.float32)
        np.testing.assert_allclose(found, expected[j], atol=1e-5)


@pytest.mark.parametrize(
    "settings",
    [
        EmbedSettings(layer="average", dtype="float16", chunk_bytes=60),
        EmbedSettings(tokenized=True, layer="top", chunk_bytes=60),
    ],
)
def test_layers_and_dtypes_can_be_selected(
    make: Callable[..., Any], tmp_path: Path, settings: EmbedSettings
) -> None:
    make("out", settings=settings)
    table = pq.read_table(tmp_path / "out" / "000000.parquet")
    number = pa.float16() if settings.dtype == "float16" else pa.float32()
    element = pa.field("element", number, nullable=False)
    assert table.schema.field("vector").type == pa.list_(element, 20)
    assert (table.column("start").null_count == len(table)) == settings.tokenized


def test_two_workers_write_the_same_files_as_one_process(
    make: Callable[..., Any], documents: list[Path], tmp_path: Path
) -> None:
    save(ModelParts(random_bilm(TINY)), tmp_path / "model")
    make("one")
    reports: list[Progress] = []
    embed_corpus(
        Workers(str(tmp_path / "model"), n_workers=2),
        documents,
        tmp_path / "two",
        SETTINGS,
        on_progress=reports.append,
    )
    assert_same_files(tmp_path / "one", tmp_path / "two")
    assert len(names(tmp_path / "one")) > 8
    # One more for the start, two less for the .json files.
    assert len(reports) == len(names(tmp_path / "one")) - 1


def test_interruption_after_every_shard_gives_the_same_files(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    make("whole")
    stops = 0
    while not (tmp_path / "pieces" / "shards.json").exists():
        kept = {p: p.stat().st_mtime_ns for p in (tmp_path / "pieces").glob("*.parquet")}
        try:
            make("pieces", resume=stops > 0, on_progress=stop_after(2))
        except Stopped:
            stops += 1
        assert kept == {p: p.stat().st_mtime_ns for p in kept}
    assert stops > 2
    assert_same_files(tmp_path / "whole", tmp_path / "pieces")
    assert make("pieces", resume=True).resumed_sentences == 24  # no work is left
    assert_same_files(tmp_path / "whole", tmp_path / "pieces")


def test_incomplete_files_of_a_killed_process_are_removed(
    make: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make("whole")
    with pytest.raises(Stopped):
        make("out", on_progress=stop_after(3))
    (tmp_path / "out" / ".000003.parquet.abcd.tmp").write_bytes(b"half")
    make("out", resume=True)
    assert_same_files(tmp_path / "whole", tmp_path / "out")


def test_changed_document_is_rejected_on_resume(
    make: Callable[..., Any], documents: list[Path]
) -> None:
    with pytest.raises(Stopped):
        make("out", on_progress=stop_after(3))
    before = documents[0].read_text()
    documents[0].write_text(before.replace("book", "look", 1))
    with pytest.raises(DataError, match=r"a\.txt differs from the text of the interrupted run"):
        make("out", resume=True)
    documents[0].write_text(before)
    make("out", resume=True)
    documents[0].write_text(before[:70])  # the chunks after its end exist
    with pytest.raises(ElmoError):
        make("out", resume=True)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"settings": EmbedSettings(layer="top", chunk_bytes=60)}, "layer was 'all'"),
        ({"settings": EmbedSettings(chunk_bytes=61)}, "chunk_bytes was 60"),
    ],
)
def test_changed_settings_are_rejected_and_named(
    make: Callable[..., Any], changed: dict[str, Any], named: str
) -> None:
    with pytest.raises(Stopped):
        make("out", on_progress=stop_after(2))
    with pytest.raises(ConfigError, match=named):
        make("out", resume=True, **changed)
    make("out", resume=True)


def test_existing_files_are_never_deleted_without_a_request(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious.txt").write_text("precious")
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(OutputError):
            make("full", **options)
    (tmp_path / "file").write_text("precious")
    with pytest.raises(OutputError, match="is a file"):
        make("file", overwrite=True)
    make("out")
    with pytest.raises(OutputError, match="--resume"):
        make("out")
    make("whole", settings=EmbedSettings(layer="top", chunk_bytes=200))
    (tmp_path / "out" / "notes.txt").write_text("mine")
    make("out", settings=EmbedSettings(layer="top", chunk_bytes=200), overwrite=True)
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"
    (tmp_path / "out" / "notes.txt").unlink()
    assert_same_files(tmp_path / "whole", tmp_path / "out")


def test_two_processes_cannot_write_to_the_same_directory(make: Callable[..., Any]) -> None:
    def again(_: Progress) -> None:
        for options in ({"resume": True}, {"overwrite": True}):
            with pytest.raises(OutputError):
                make("out", **options)

    make("out", on_progress=again)


def test_damaged_shard_is_identified(make: Callable[..., Any], tmp_path: Path) -> None:
    make("whole")
    with pytest.raises(Stopped):
        make("out", on_progress=stop_after(3))
    (tmp_path / "out" / "000001.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"000001\.parquet is damaged .* Delete it"):
        make("out", resume=True)
    (tmp_path / "out" / "000001.parquet").unlink()
    make("out", resume=True)
    assert_same_files(tmp_path / "whole", tmp_path / "out")


def test_shard_that_disappears_during_the_run_is_an_error(
    make: Callable[..., Any], tmp_path: Path
) -> None:
    def remove(_: Progress) -> None:
        (tmp_path / "run" / "000000.parquet").unlink(missing_ok=True)

    with pytest.raises(DataError, match=r"is missing 1 of .*, for example 000000\.parquet\. To"):
        make("run", on_progress=remove)
    make("run", resume=True)
    make("whole")
    shards = [path.name for path in (tmp_path / "whole").glob("*.parquet")]
    assert len(shards) > 1
    for name in shards:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_resume_without_a_previous_run_gives_a_warning(make: Callable[..., Any]) -> None:
    with pytest.warns(ElmoWarning, match="No interrupted run found"):
        make("out", resume=True)


def test_skipped_and_truncated_input_is_counted_with_a_warning(
    make: Callable[..., Any], documents: list[Path]
) -> None:
    documents[0].write_bytes(b"fine\n\xff\n" + b"x" * 60 + b"\n")
    with pytest.warns(ElmoWarning) as caught:
        summary = make("out", skip_bad=True)
    assert (summary.skipped_lines, summary.truncated_tokens) == (1, 1)
    first, second = sorted(str(w.message) for w in caught)
    assert re.match(r"Skipped 1 line: \S*a.txt, line 2", first)
    assert second == "Truncated 1 token to 48 bytes."


def test_state_cannot_be_carried_across_shards(make: Callable[..., Any]) -> None:
    with pytest.raises(ConfigError):
        make("out", settings=EmbedSettings(state="carry"))


def test_directory_may_be_remote(elmo: ElmoModel, tmp_path: Path) -> None:
    """A file:// URL is accessed through pyarrow, just like s3://."""
    place = f"file://{tmp_path}/out"
    chunk = Chunk(0, True, [Passage(0, 1, 0, 0, "A line."), Passage(0, 2, 0, 0, "")], 9)
    manifest = {"model": "x"}
    directory = ShardDirectory(place)
    directory.prepare(SETTINGS.layout(elmo.config), ("a.txt",))
    with directory.open_run(manifest) as is_resumed:
        assert not is_resumed
        record = ChunkJob(("a.txt",), SETTINGS, directory).run(elmo, chunk).record
        assert record["tokens"] == 3
        assert directory.records() == {0: record}
    resumed = ShardDirectory(place, resume=True)
    with resumed.open_run(manifest) as is_resumed:
        assert is_resumed
        with suppress(Stopped), resumed.open_for_writing("000001.parquet") as file:
            file.write(b"half")
            raise Stopped
        assert list(resumed.records()) == [0]
    with pytest.raises(ConfigError, match="model was 'x'"), resumed.open_run({}):
        pass
    with directory.open_run(manifest) as is_resumed:
        assert not is_resumed
        assert directory.records() == {}


def test_ray_without_its_extra_is_an_error(
    make: Callable[..., Any], documents: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(DependencyError, match=r"pip install 'elmokit\[ray\]'"):
        embed_corpus(RayCluster(), documents, tmp_path / "out", SETTINGS)
    assert not (tmp_path / "out").exists()
