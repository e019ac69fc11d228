"""Reading a directory of shards as one sequence: every sentence in order, however it is split."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elmokit
from elmokit.bulk.formats import parquet
from elmokit.bulk.input import Chunk, Passage
from elmokit.bulk.job import ChunkJob
from elmokit.bulk.run import embed_corpus
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.shards import ShardDirectory, ShardedVectors
from elmokit.embed.model import ElmoModel
from elmokit.errors import DataError
from elmokit.text.sentences import split_sentences
from tests.bulk.runs import TEXT, Stopped, stop_after
from tests.bulk.test_kill import write_text

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SETTINGS = EmbedSettings(chunk_bytes=60)
# Empty lines at the beginning, in the middle, at the end, and at chunk boundaries.
FIRST = "\n\n" + TEXT + "\n\nThe end\n\n\n"
LAST = "\nA last one.\n"


@pytest.fixture
def documents(tmp_path: Path) -> list[Path]:
    (tmp_path / "a.txt").write_text(FIRST, encoding="utf-8")
    (tmp_path / "empty.txt").write_text("")
    (tmp_path / "blank.txt").write_text("\n\n")
    pq.write_table(pa.table({"text": LAST.split("\n")[:-1]}), tmp_path / "b.parquet")
    return [tmp_path / name for name in ("a.txt", "empty.txt", "blank.txt", "b.parquet")]


@pytest.fixture
def make(elmo: ElmoModel, documents: list[Path], tmp_path: Path) -> Callable[..., Path]:
    def embed(settings: EmbedSettings = SETTINGS, **options: Any) -> Path:
        embed_corpus(elmo, documents, tmp_path / "out", settings, **options)
        return tmp_path / "out"

    return embed


def lines_of(text: str) -> list[str]:
    return text.split("\n")[:-1]


SENTENCES = [*lines_of(FIRST), "", "", *lines_of(LAST)]


@pytest.mark.parametrize("chunk_bytes", [1, 60, 10**6])
@pytest.mark.parametrize("group_tokens", [1, 20, 10**6])
def test_all_sentences_are_read_in_order_with_their_vectors(
    make: Callable[..., Path],
    elmo: ElmoModel,
    chunk_bytes: int,
    group_tokens: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parquet, "_GROUP_TOKENS", group_tokens)
    out = make(EmbedSettings(chunk_bytes=chunk_bytes))
    expected = elmo.embed(SENTENCES)
    with elmokit.open_vectors(out) as stored:
        assert len(stored) == len(SENTENCES)
        for found, wanted in zip(stored, expected, strict=True):
            assert found.tokens == wanted.tokens
            assert found.vectors.shape == wanted.layers.shape
            np.testing.assert_allclose(found.vectors, wanted.layers, atol=2e-6)


def test_random_access_by_index_and_slice(make: Callable[..., Path], elmo: ElmoModel) -> None:
    expected = [item.tokens for item in elmo.embed(SENTENCES)]
    stored = elmokit.open_vectors(make())
    for i in np.random.default_rng(0).permutation(len(expected)).tolist():
        assert stored[i].tokens == stored[i - len(expected)].tokens == expected[i]
    assert [s.tokens for s in stored[2:-1:2]] == expected[2:-1:2]
    with pytest.raises(IndexError, match=f"Invalid index {len(expected)}"):
        stored[len(expected)]
    stored.close()
    assert stored[2].tokens == expected[2]  # opens the shard again


def test_documents_and_their_sentences(make: Callable[..., Path], documents: list[Path]) -> None:
    with ShardedVectors(str(make())) as stored:
        first, last = len(lines_of(FIRST)), len(lines_of(LAST))
        assert stored.documents == [
            (str(documents[0]), range(first)),
            (str(documents[1]), range(first, first)),
            (str(documents[2]), range(first, first + 2)),
            (str(documents[3]), range(first + 2, first + 2 + last)),
        ]
        assert stored.metadata["documents"] == [str(path) for path in documents]
        assert stored.metadata["state"] == "reset"
        assert f"{len(SENTENCES)} sentences, all layers, 20 dimensions, float32" in repr(stored)


@pytest.mark.parametrize(
    "settings",
    [
        EmbedSettings(layer="top", dtype="float16", chunk_bytes=60),
        EmbedSettings(layer="average", chunk_bytes=60),
        EmbedSettings(layer="mix", mix=(0.5, 0.25, 0.25), gamma=2.0, chunk_bytes=60),
        EmbedSettings(layer="average", tokenized=True, chunk_bytes=60),
    ],
)
def test_layers_and_dtypes(
    make: Callable[..., Path], elmo: ElmoModel, settings: EmbedSettings
) -> None:
    sentences = [s.split() for s in SENTENCES] if settings.tokenized else SENTENCES
    with elmokit.open_vectors(make(settings)) as stored:
        assert stored.layout == settings.layout(elmo.config)
        for found, item in zip(stored, elmo.embed(sentences), strict=True):  # type: ignore[call-overload]
            wanted = settings.layout(elmo.config).select(item.layers)[0]
            assert (found.tokens, found.vectors.dtype) == (item.tokens, settings.dtype)
            np.testing.assert_allclose(found.vectors, wanted, atol=2e-3)


def test_sentences_split_from_paragraphs(make: Callable[..., Path], elmo: ElmoModel) -> None:
    found = [sentence for line in SENTENCES for sentence in split_sentences(line)]
    with elmokit.open_vectors(make(EmbedSettings(split=True, chunk_bytes=60))) as stored:
        assert [s.tokens for s in stored] == [item.tokens for item in elmo.embed(found)]
    assert len(found) > len([line for line in SENTENCES if line])


@pytest.mark.filterwarnings("ignore::elmokit.errors.ElmoWarning")
def test_skipped_invalid_lines_leave_no_gap(
    make: Callable[..., Path], documents: list[Path]
) -> None:
    documents[0].write_bytes(b"One here\n\xff\n\nTwo\n\xff\n\xff\n\nThree\n\xff\n")
    with elmokit.open_vectors(make(EmbedSettings(chunk_bytes=9), skip_bad=True)) as stored:
        found = [s.tokens for s in stored][:5]
    assert found == [["One", "here"], [], ["Two"], [], ["Three"]]


def test_reading_keeps_only_one_row_group_in_memory(
    elmo: ElmoModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_text(tmp_path / "text.txt", 600)
    monkeypatch.setattr(parquet, "_GROUP_TOKENS", 200)
    summary = embed_corpus(elmo, [text], tmp_path / "out", EmbedSettings(chunk_bytes=8000))
    size = sum(path.stat().st_size for path in (tmp_path / "out").glob("*.parquet"))
    assert size > summary.tokens * 240
    before, most = pa.total_allocated_bytes(), 0
    with elmokit.open_vectors(tmp_path / "out") as stored:
        read = 0
        for found in stored:
            read += len(found.vectors[0])
            most = max(most, pa.total_allocated_bytes() - before)
    assert read == summary.tokens
    assert 0 < most < size / 5


def test_directory_may_be_remote(elmo: ElmoModel, tmp_path: Path) -> None:
    """A file:// URL is accessed through pyarrow, just like s3://."""
    place = f"file://{tmp_path}/out"
    directory = ShardDirectory(place)
    layout = SETTINGS.layout(elmo.config)
    directory.prepare(layout, ("a.txt",))
    chunk = Chunk(0, True, [Passage(0, 1, 0, 0, "A line."), Passage(0, 2, 0, 0, "")], 9)
    with directory.open_run({**layout.to_dict(), "documents": ["a.txt"]}):
        record = ChunkJob(("a.txt",), SETTINGS, directory).run(elmo, chunk).record
    with pytest.raises(DataError, match="is not finished: it contains 1 shard,"):
        ShardedVectors(place)
    directory.write_json("shards.json", {"shards": [{"shard": "000000.parquet", **record}]})
    with ShardedVectors(place) as stored:
        assert [s.tokens for s in stored] == [["A", "line", "."], []]


# ------------------------------------------------------------------------------ invalid directories


def test_unfinished_directory_is_rejected_until_it_is_finished(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    with pytest.raises(Stopped):
        make(on_progress=stop_after(3))
    out = tmp_path / "out"
    with pytest.raises(DataError, match=r"contains \d shards?,.*`elmo embed` .* with --resume"):
        elmokit.open_vectors(out)
    make(resume=True)
    assert len(elmokit.open_vectors(out)) == len(SENTENCES)


def test_other_directories_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        elmokit.open_vectors(tmp_path / "nowhere")
    with pytest.raises(DataError):
        elmokit.open_vectors(tmp_path)
    (tmp_path / "other.txt").write_text("x")
    with pytest.raises(DataError, match=r"expected manifest\.json, .* contains other\.txt"):
        elmokit.open_vectors(str(tmp_path))
    with pytest.raises(DataError, match="Cannot open the directory nonsense://x"):
        elmokit.open_vectors("nonsense://x")


def change_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("manifest.json", lambda v: v.update(version=1), "format version 1, .* expects version 3"),
        ("manifest.json", lambda v: v.pop("dim"), "is damaged"),
        ("manifest.json", lambda v: v.update(layer="odd"), "is damaged"),
        ("manifest.json", lambda v: v.update(n_layers=10**8), "is damaged"),
        ("manifest.json", lambda v: v.update(dim=10**9), "is damaged"),
        ("manifest.json", lambda v: v.update(documents=[]), "is damaged"),
        ("shards.json", lambda v: v.pop("shards"), "has no list of shards"),
        ("shards.json", lambda v: v["shards"][0].pop("sentences"), "is damaged"),
    ],
)
def test_damaged_manifests_are_rejected(
    make: Callable[..., Path], name: str, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    out = make()
    change_json(out / name, change)
    with pytest.raises(DataError, match=message):
        elmokit.open_vectors(out)


def test_missing_damaged_and_mismatched_shards_are_identified(
    make: Callable[..., Path], elmo: ElmoModel, tmp_path: Path
) -> None:
    out = make()
    (tmp_path / "other.txt").write_text("Not that text.\n")
    embed_corpus(elmo, [tmp_path / "other.txt"], tmp_path / "other", SETTINGS)
    shard = out / "000000.parquet"
    before = shard.read_bytes()
    shard.write_bytes((tmp_path / "other" / "000000.parquet").read_bytes())
    with pytest.raises(DataError, match=r"000000\.parquet .*differs from shards\.json"):
        elmokit.open_vectors(out)[0]
    shard.write_bytes(before[:-40])
    with pytest.raises(DataError, match=r"000000\.parquet is damaged.*Delete it and resume"):
        elmokit.open_vectors(out)[0]
    shard.unlink()
    with pytest.raises(DataError, match=r"missing 1 of \d+ shards.*000000\.parquet"):
        elmokit.open_vectors(out)
    make(resume=True)
    assert shard.read_bytes() == before
    assert len(list(elmokit.open_vectors(out))) == len(SENTENCES)
