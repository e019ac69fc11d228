"""Documents and chunks: chunks depend only on the text and contain all of it."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from elmokit.bulk import input as module
from elmokit.bulk.input import Chunk, Passage, check_documents, read_chunks
from elmokit.bulk.settings import EmbedSettings
from elmokit.errors import DataError
from elmokit.text.lines import text_size
from elmokit.text.sentences import sentence_spans

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

LINES = ["The first line.", "", "Another line, and it is long.", "Short", "", "été 日本"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def chunks_of(*names: object, chunk_bytes: int = 2**18, **options: Any) -> list[Chunk]:
    settings = EmbedSettings(chunk_bytes=chunk_bytes, split=options.pop("split", False))
    options = {"skip_bad": False, **options}
    return list(read_chunks([str(name) for name in names], settings, **options))


def lines_of(chunks: list[Chunk]) -> list[str]:
    passages = [passage for chunk in chunks for passage in chunk.passages]
    assert [p.line for p in passages] == list(range(1, len(passages) + 1))
    return [passage.text for passage in passages]


@pytest.mark.parametrize("chunk_bytes", [1, 10, 16, 17, 40, 1000])
def test_chunks_contain_all_lines_and_the_last_one_is_marked(text: Path, chunk_bytes: int) -> None:
    chunks = chunks_of(text, chunk_bytes=chunk_bytes)
    assert lines_of(chunks) == LINES
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert all(chunk.n_bytes >= chunk_bytes for chunk in chunks[:-1])
    assert sum(chunk.n_bytes for chunk in chunks) == text.stat().st_size == text_size([str(text)])


def test_text_without_lines_is_one_chunk(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    assert chunks_of(tmp_path / "empty.txt") == [Chunk(0, True, [], 0)]


def test_small_documents_share_a_chunk(text: Path) -> None:
    [chunk] = chunks_of(text, text, text)
    assert [passage.document for passage in chunk.passages] == [0] * 6 + [1] * 6 + [2] * 6


def test_digest_depends_on_lines_positions_and_the_end() -> None:
    def digest(*passages: tuple[int, str], is_last: bool = False) -> str:
        return Chunk(0, is_last, [Passage(0, n, 0, 0, text) for n, text in passages], 0).digest

    found = [
        digest((1, "a"), (2, "bc")),
        digest((1, "ab"), (2, "c")),
        digest((1, "a"), (3, "bc")),
        digest((1, "a"), (2, "bc"), is_last=True),
        digest((1, "a")),
    ]
    assert len(set(found)) == 5


def test_compressed_remote_and_parquet_documents_give_the_same_chunks(
    text: Path, tmp_path: Path
) -> None:
    expected = chunks_of(text, chunk_bytes=20)
    packed = tmp_path / "text.txt.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    table = tmp_path / "text.parquet"
    pq.write_table(pa.table({"id": range(6), "body": LINES}), table, row_group_size=4)
    for name in (packed, text.as_uri(), packed.as_uri()):
        assert chunks_of(name, chunk_bytes=20) == expected
    for name in (table, table.as_uri()):
        assert chunks_of(name, chunk_bytes=20, column="body") == expected
    assert text_size([str(text), str(packed)]) is None


def test_rows_without_text_are_empty_lines(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", None, "b"]}), tmp_path / "t.parquet")
    assert lines_of(chunks_of(tmp_path / "t.parquet")) == ["a", "", "b"]


def test_invalid_lines_are_reported_or_counted_in_their_chunk(tmp_path: Path) -> None:
    (path := tmp_path / "bad.txt").write_bytes(b"one\n\xff\ntwo\n\xff\n\xff\nthree\n")
    with pytest.raises(DataError, match=r"bad\.txt, line 2"):
        chunks_of(path)
    with pytest.raises(DataError, match=r"file://.*bad\.txt, line 2"):
        chunks_of(path.as_uri())
    chunks = chunks_of(path, chunk_bytes=1, skip_bad=True)
    assert [[(p.line, p.text) for p in chunk.passages] for chunk in chunks] == [
        [(1, "one")],
        [(3, "two")],
        [(6, "three")],
    ]
    assert sum(chunk.skipped_lines for chunk in chunks) == 3


# ----------------------------------------------------------------------------------- long lines


@pytest.mark.parametrize("suffix", [".txt", ".parquet"])
def test_long_lines_are_split_between_sentences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(module, "_PIECE_BYTES", 400)
    line = "".join(
        f"Sätze Nr. {i} are many. Is it {'so ' * (i % 40)}? \u65e5\u672c. " for i in range(99)
    )
    path = tmp_path / f"long{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.table({"text": ["Before.", line, "After."]}), path)
    else:
        path.write_text(f"Before.\n{line}\nAfter.", encoding="utf-8")
    chunks = chunks_of(path, chunk_bytes=1000, split=True)
    passages = [p for chunk in chunks for p in chunk.passages]
    assert (passages[0].text, passages[-1].text) == ("Before.", "After.")
    inner = [p for p in passages if p.line == 2]
    assert len(inner) > 5
    assert max(len(p.text) for p in inner) < 1500
    found = [
        (p.sentence + i, p.offset + a, p.offset + b)
        for p in inner
        for i, (a, b) in enumerate(sentence_spans(p.text))
    ]
    assert found == [(i, *span) for i, span in enumerate(sentence_spans(line))]


def test_error_for_an_endless_line_or_sentence_states_the_limit(
    tmp_path: Path,
) -> None:
    (path := tmp_path / "t.txt").write_text("fine\n" + "x" * (2**20 + 2**17))
    with pytest.raises(DataError, match=r"t\.txt, line 2: the line is longer than 1,048,576 bytes"):
        chunks_of(path)
    with pytest.raises(DataError, match=r"t\.txt, line 2: a sentence is longer than 1,048,576"):
        chunks_of(path, split=True)
    for split in (False, True):
        with pytest.raises(DataError, match=r"/dev/zero, line 1: .* longer than 1,048,576"):
            chunks_of("/dev/zero", split=split)
    pq.write_table(pa.table({"text": ["x" * (2**20 + 1)]}), tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet, line 1: .* longer than 1,048,576"):
        chunks_of(tmp_path / "t.parquet")


def test_unreadable_input_is_identified(text: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [1, 2], "body": ["a", "b"]}), tmp_path / "t.parquet")
    message = r"no text column 'text'; its columns are: text \(int64\), body \(string\).*--column"
    with pytest.raises(DataError, match=message):
        chunks_of(tmp_path / "t.parquet")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"Cannot read .*broken\.parquet as a Parquet file"):
        chunks_of(tmp_path / "broken.parquet")
    with pytest.raises(DataError, match=r"Cannot read .*missing\.txt"):
        chunks_of((tmp_path / "missing.txt").as_uri())
    for name, reason in (("no.txt", "does not exist"), (".", "is a")):
        with pytest.raises(DataError, match=reason):
            check_documents([str(text), name])
    check_documents([str(text), "s3://bucket/unknown.txt"])
