"""Vectors as Arrow columns: shared memory and round trips."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import elmokit
from elmokit.embed.vectors import SentenceVectors
from elmokit.errors import ConfigError, DataError
from tests.conftest import TINY_MODEL

pa = pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")
pq = pytest.importorskip("pyarrow.parquet", reason="the extra `arrow` is not installed")

from elmokit.integrations.arrow import (  # noqa: E402
    from_arrow,
    matrix,
    to_arrow,
    to_pandas,
    to_polars,
)

SENTENCES = ["And God said, Let there be light:", "", "and there was light."]


@pytest.fixture(scope="module")
def out() -> list[SentenceVectors]:
    return elmokit.load(TINY_MODEL).embed(SENTENCES)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def addresses(column: Any) -> list[int]:
    """Return the addresses of a column's values, chunk by chunk."""
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    return [address(chunk.flatten().to_numpy(zero_copy_only=True)) for chunk in chunks]


def same(found: list[SentenceVectors], expected: list[SentenceVectors]) -> None:
    assert [v.tokens for v in found] == [v.tokens for v in expected]
    for one, other in zip(found, expected, strict=True):
        assert one.offsets == other.offsets
        np.testing.assert_array_equal(one.layers, other.layers)


def test_values_are_not_copied(out: list[SentenceVectors]) -> None:
    table = to_arrow(out)
    read = [v for v in out if len(v)]
    for j in range(3):
        assert addresses(table.column(f"layer_{j}")) == [address(v.layers[j]) for v in read]
    assert table.column("layer_2").type == pa.list_(pa.float32(), 32)


def test_one_row_per_token(out: list[SentenceVectors]) -> None:
    table = to_arrow(out)
    assert table.column("token").to_pylist() == [t for v in out for t in v.tokens]
    assert set(table.column("sentence").to_pylist()) == {0, 2}
    assert table.column("token_index").to_pylist()[-1] == len(out[2]) - 1
    starts, ends = (table.column(name).to_pylist() for name in ("start", "end"))
    assert (starts[2], ends[2]) == (8, 12)
    assert SENTENCES[0][8:12] == "said"


def test_one_vector_per_token(out: list[SentenceVectors]) -> None:
    first = out[0]
    assert addresses(to_arrow(first, layer="top").column("vector")) == [address(first.top)]
    mixed = to_arrow(first, layer="mix", mix=[0.2, 0.3, 0.5]).column("vector")
    np.testing.assert_allclose(matrix(mixed), first.mix([0.2, 0.3, 0.5]), atol=1e-6)
    assert to_arrow(first, layer="concat").schema.field("vector").type.list_size == 96
    with pytest.raises(ConfigError):
        to_arrow(first, layer="mix")


def test_matrix_is_a_view_of_one_chunk(out: list[SentenceVectors]) -> None:
    one = matrix(to_arrow(out[0]).column("layer_1"))
    assert address(one) == address(out[0].layers[1])
    both = matrix(to_arrow(out).column("layer_1"))
    np.testing.assert_array_equal(both, np.concatenate([v.layers[1] for v in out]))
    with pytest.raises(DataError):
        matrix(pa.array([1.0, 2.0]))


def test_round_trip(out: list[SentenceVectors]) -> None:
    same(from_arrow(to_arrow(out)), out)
    tokenized = elmokit.load(TINY_MODEL).embed([["And", "it"], ["was", "so"]])
    assert to_arrow(tokenized).column("start").null_count == 4
    same(from_arrow(to_arrow(tokenized)), tokenized)


def test_columns_of_a_slice_of_a_larger_table(out: list[SentenceVectors]) -> None:
    cut = to_arrow(out).slice(2, 3).combine_chunks()
    np.testing.assert_array_equal(matrix(cut.column("layer_0")), out[0].layers[0, 2:5])


def test_pandas_shares_the_memory(out: list[SentenceVectors]) -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = to_pandas(out)
    assert isinstance(frame, pandas.DataFrame)
    column = pa.array(frame["layer_1"])
    assert addresses(column) == [address(v.layers[1]) for v in out if len(v)]
    assert address(matrix(to_pandas(out[0], layer="top")["vector"])) == address(out[0].top)
    assert frame["token"].tolist() == [t for v in out for t in v.tokens]
    same(from_arrow(frame), out)


def test_polars_shares_the_memory(out: list[SentenceVectors]) -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    frame = to_polars(out)
    assert isinstance(frame, polars.DataFrame)
    chunks = [chunk.to_arrow() for chunk in frame["layer_1"].get_chunks()]
    found = [addresses(chunk)[0] for chunk in chunks]
    assert found == [address(v.layers[1]) for v in out if len(v)]
    assert address(matrix(to_polars(out[0], layer="top")["vector"])) == address(out[0].top)
    assert frame["token"].to_list() == [t for v in out for t in v.tokens]
    same(from_arrow(frame), out)


def test_other_tables_are_rejected(out: list[SentenceVectors]) -> None:
    with pytest.raises(DataError):
        to_arrow([])
    with pytest.raises(DataError, match="but not layer_0"):
        from_arrow(to_arrow(out, layer="top"))
    table = to_arrow(out)
    with pytest.raises(DataError):
        from_arrow(table.take(list(range(table.num_rows))[::-1]))
    surrogate = SentenceVectors(["\ud800"], None, out[0].layers[:, :1])
    with pytest.raises(DataError, match="lone surrogate"):
        to_arrow(surrogate)


def save_pandas(out: list[SentenceVectors], path: Path, **chosen: Any) -> None:
    pytest.importorskip("pandas", reason="pandas is not installed")
    to_pandas(out, **chosen).to_parquet(path, row_group_size=5)


def save_polars(out: list[SentenceVectors], path: Path, **chosen: Any) -> None:
    pytest.importorskip("polars", reason="polars is not installed")
    to_polars(out, **chosen).write_parquet(path, row_group_size=5)


def save_arrow(out: list[SentenceVectors], path: Path, **chosen: Any) -> None:
    pq.write_table(to_arrow(out, **chosen), path, row_group_size=5)


@pytest.mark.parametrize("save", [save_pandas, save_polars, save_arrow])
def test_saved_data_frame_is_a_vector_file(
    out: list[SentenceVectors], tmp_path: Path, save: Callable[..., None]
) -> None:
    save(out, tmp_path / "all.parquet")
    with elmokit.open_vectors(tmp_path / "all.parquet") as stored:
        assert [s.tokens for s in stored] == [v.tokens for v in out]
        for sentence, vectors in zip(stored, out, strict=True):
            np.testing.assert_array_equal(sentence.vectors, vectors.layers)
    save(out, tmp_path / "top.parquet", layer="top")
    with elmokit.open_vectors(tmp_path / "top.parquet") as stored:
        np.testing.assert_array_equal(stored[2].vectors, out[2].top)


HUGE_LIST = pa.list_(pa.float32(), 2**31 - 1)


def described(table: Any, *, sentences: int = 3, **values: int) -> Any:
    about = {"sentences": sentences}
    values = {"dim": 32, "n_layers": 3, **values}
    description = {"version": 1, "layer": "all", "dtype": "float32", **values, "about": about}
    return table.replace_schema_metadata({"elmokit": json.dumps(description)})


def test_other_parquet_files_are_rejected(out: list[SentenceVectors], tmp_path: Path) -> None:
    table = to_arrow(out)
    path = tmp_path / "x.parquet"
    for wrong in (
        pa.table({"text": ["a"]}),
        table.drop_columns("token"),
        table.drop_columns("layer_1"),
        table.take(list(range(table.num_rows))[::-1]),
        table.set_column(0, "sentence", pa.array([None] * table.num_rows, pa.int64())),
        table.set_column(0, "sentence", pa.array(["0"] * table.num_rows)),
        table.set_column(5, "layer_0", pa.array([[1.0]] * table.num_rows)),
        table.set_column(0, "sentence", pa.array([10**18] * table.num_rows)),
        pa.table({"sentence": [0], "token": ["a"], "vector": pa.nulls(1, HUGE_LIST)}),
        described(table, dim=10**9),
        described(table, sentences=10**18),
        described(table, n_layers=10**6),
    ):
        pq.write_table(wrong, path)
        with pytest.raises(DataError):
            elmokit.open_vectors(path)
