"""Documents and their chunks: cut by the text alone, and nothing lost."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from elmokit.bulk.documents import Chunk, check_documents, cut_chunks, known_size
from elmokit.errors import DataError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

LINES = ["The first line.", "", "Another line, and it is long.", "Short", "", "été 日本"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return path


def lines_of(chunks: list[Chunk]) -> list[str]:
    assert [n for chunk in chunks for n in chunk.numbers] == list(
        range(1, sum(len(chunk.numbers) for chunk in chunks) + 1)
    )
    return [line for chunk in chunks for line in chunk.texts]


@pytest.mark.parametrize("chunk_bytes", [1, 10, 16, 17, 40, 1000])
def test_chunks_hold_all_lines_and_the_last_one_says_so(text: Path, chunk_bytes: int) -> None:
    chunks = list(cut_chunks(3, str(text), chunk_bytes=chunk_bytes))
    assert lines_of(chunks) == LINES
    assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
    assert [chunk.is_last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert all(chunk.n_bytes >= chunk_bytes for chunk in chunks[:-1])
    assert sum(chunk.n_bytes for chunk in chunks) == text.stat().st_size == known_size([str(text)])
    assert chunks[0].name == "00003-000000.parquet"


def test_a_document_without_lines_is_one_chunk(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("")
    assert list(cut_chunks(0, str(tmp_path / "empty.txt"))) == [Chunk(0, 0, True, [], [])]


def test_a_digest_knows_lines_numbers_and_the_end() -> None:
    chunk = Chunk(0, 0, False, [1, 2], ["a", "bc"])
    others = [
        Chunk(0, 0, False, [1, 2], ["ab", "c"]),
        Chunk(0, 0, False, [1, 3], ["a", "bc"]),
        Chunk(0, 0, True, [1, 2], ["a", "bc"]),
        Chunk(0, 0, False, [1], ["a"]),
    ]
    assert len({c.digest for c in [chunk, *others]}) == 5


def test_packed_remote_and_parquet_documents_are_cut_like_the_plain_text(
    text: Path, tmp_path: Path
) -> None:
    expected = list(cut_chunks(0, str(text), chunk_bytes=20))
    packed = tmp_path / "text.txt.gz"
    packed.write_bytes(gzip.compress(text.read_bytes()))
    table = tmp_path / "text.parquet"
    pq.write_table(pa.table({"id": range(6), "body": LINES}), table, row_group_size=4)
    for name in (str(packed), text.as_uri(), packed.as_uri()):
        assert list(cut_chunks(0, name, chunk_bytes=20)) == expected
    for name in (str(table), table.as_uri()):
        assert list(cut_chunks(0, name, chunk_bytes=20, column="body")) == expected
    assert known_size([str(text), str(packed)]) is None


def test_rows_without_text_are_empty_lines(tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["a", None, "b"]}), tmp_path / "t.parquet")
    assert lines_of(list(cut_chunks(0, str(tmp_path / "t.parquet")))) == ["a", "", "b"]


def test_bad_lines_are_named_or_counted_in_their_chunk(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"one\n\xff\ntwo\n\xff\n\xff\nthree\n")
    name = str(tmp_path / "bad.txt")
    with pytest.raises(DataError, match=r"bad\.txt, line 2"):
        list(cut_chunks(0, name))
    with pytest.raises(DataError, match=r"file://.*bad\.txt, line 2"):
        list(cut_chunks(0, (tmp_path / "bad.txt").as_uri()))
    chunks = list(cut_chunks(0, name, chunk_bytes=1, skip_bad=True))
    assert [(chunk.numbers, chunk.texts) for chunk in chunks] == [
        ([1], ["one"]),
        ([3], ["two"]),
        ([6], ["three"]),
    ]
    assert sum(chunk.skipped for chunk in chunks) == 3


def test_what_cannot_be_read_is_named(text: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": [1, 2], "body": ["a", "b"]}), tmp_path / "t.parquet")
    message = r"no column 'text' of text; it has: text \(int64\), body \(string\).*--column"
    with pytest.raises(DataError, match=message):
        list(cut_chunks(0, str(tmp_path / "t.parquet")))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"broken\.parquet cannot be read as a Parquet file"):
        list(cut_chunks(0, str(tmp_path / "broken.parquet")))
    with pytest.raises(DataError, match=r"missing\.txt cannot be read"):
        list(cut_chunks(0, (tmp_path / "missing.txt").as_uri()))
    for name, reason in (
        ("-", "cannot be read again"),
        ("no.txt", "does not exist"),
        (".", "is a"),
    ):
        with pytest.raises(DataError, match=reason):
            check_documents([str(text), name])
    check_documents([str(text), "s3://bucket/unknown.txt"])
