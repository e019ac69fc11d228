"""Each format as other programs read and write it."""

from __future__ import annotations

import json
import sys
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from safetensors.numpy import load_file

from elmokit.bulk.formats import hdf5, open_vectors, write_vectors
from elmokit.embed.vectors import SentenceVectors
from elmokit.errors import DataError, DependencyError, ElmoWarning
from tests.bulk.test_formats import DIM, LAYERS, sentence, some_sentences

pa = pytest.importorskip("pyarrow", reason="pyarrow is the extra 'arrow'")
pq = pytest.importorskip("pyarrow.parquet", reason="pyarrow is the extra 'arrow'")


@pytest.fixture
def sentences() -> list[SentenceVectors]:
    return some_sentences()


def test_hdf5_can_be_read_like_files_of_allennlp(
    tmp_path: Path, sentences: list[SentenceVectors]
) -> None:
    path = tmp_path / "vectors.h5"
    write_vectors(path, sentences)
    with h5py.File(path) as file:
        assert set(file) == {"0", "1", "2", "3", "4", "sentence_to_index"}
        assert file["0"].shape == (LAYERS, 5, DIM)
        assert file["0"].dtype == np.float32
        np.testing.assert_array_equal(file["2"][...], sentences[2].layers)
        assert file["sentence_to_index"].shape == (1,)
        index = json.loads(file["sentence_to_index"][0])
        # As with AllenNLP, the index lists the last one of equal sentences.
        assert index == {"I read the b\u00f6\u00f6k .": "3", "": "4", "Yes \U0001f642": "2"}
    write_vectors(path, sentences, layer="top")
    with h5py.File(path) as file:
        assert file["0"].shape == (5, DIM)


def test_hdf5_omits_the_index_if_it_would_not_fit_in_memory(
    tmp_path: Path, sentences: list[SentenceVectors], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "vectors.h5"
    monkeypatch.setattr(hdf5, "_MAX_INDEX_SENTENCES", 4)
    with pytest.warns(
        ElmoWarning, match="has no 'sentence_to_index', because the text has more than 4 sentences"
    ):
        write_vectors(path, sentences)
    with h5py.File(path) as file:
        assert set(file) == {"0", "1", "2", "3", "4"}
    assert open_vectors(path)[3].tokens == sentences[3].tokens
    monkeypatch.setattr(hdf5, "_MAX_INDEX_SENTENCES", 10)
    monkeypatch.setattr(hdf5, "_MAX_INDEX_BYTES", 10)
    with pytest.warns(ElmoWarning, match="sentences or 0 MB"):
        write_vectors(path, sentences)


def test_hdf5_of_other_programs_is_read(tmp_path: Path) -> None:
    path = tmp_path / "allennlp.hdf5"
    layers = np.arange(3 * 2 * 4, dtype=np.float32).reshape(3, 2, 4)
    with h5py.File(path, "w") as file:
        for key in ("0", "1", "2"):
            file.create_dataset(key, layers.shape, dtype="float32", data=layers)
        text = file.create_dataset("sentence_to_index", (1,), dtype=h5py.special_dtype(vlen=str))
        text[0] = json.dumps({"Hello .": "1", "not the number of tokens": "2"})
    with open_vectors(path) as stored:
        assert len(stored) == 3
        assert (stored.layout.layer, stored.layout.dim) == ("all", 4)
        assert [s.tokens for s in stored] == [None, ["Hello", "."], None]
        np.testing.assert_array_equal(stored[1].vectors, layers)
    # Bilm-tf writes no index; other programs write one layer in float64.
    with h5py.File(path, "w") as file:
        file.create_dataset("0", data=layers[0].astype(np.float64))
    with open_vectors(path) as stored:
        assert stored[0].tokens is None
        assert stored[0].vectors.shape == (2, 4)


@pytest.mark.parametrize(
    ("tokens", "shape"),
    [
        (["a", "b"], (3, 3, 4)),
        (["a", "b"], (2, 2, 4)),
        (["a", "b"], (3, 2, 5)),
        ("a", (3, 1, 4)),
        ([1, 2], (3, 2, 4)),
        (5, (3, 2, 4)),
        (None, (3, 2, 5)),
        (None, (4,)),
    ],
)
def test_sentence_that_contradicts_the_layout_is_rejected(
    tmp_path: Path, tokens: object, shape: tuple[int, ...]
) -> None:
    path = tmp_path / "vectors.h5"
    with h5py.File(path, "w") as file:
        file["0"] = np.zeros((3, 1, 4), np.float32)
        file["1"] = np.zeros(shape, np.float32)
        file["1"].attrs["tokens"] = np.bytes_(json.dumps(tokens))
    with open_vectors(path) as stored:
        assert stored[0].vectors.shape == (3, 1, 4)
        with pytest.raises(DataError, match=r"vectors\.h5 is damaged: cannot read sentence 1"):
            _ = stored[1]


def test_npz_can_be_read_with_numpy_only(tmp_path: Path, sentences: list[SentenceVectors]) -> None:
    path = tmp_path / "vectors.npz"
    write_vectors(path, sentences)
    with np.load(path, allow_pickle=False) as arrays:
        check_arrays(dict(arrays), sentences)


def test_safetensors_can_be_read_with_the_library(
    tmp_path: Path, sentences: list[SentenceVectors]
) -> None:
    path = tmp_path / "vectors.safetensors"
    write_vectors(path, sentences)
    check_arrays(load_file(path), sentences)
    from safetensors.torch import load_file as load_torch

    assert load_torch(path)["vectors"].shape == (12, LAYERS, DIM)


def check_arrays(arrays: dict[str, np.ndarray], sentences: list[SentenceVectors]) -> None:
    assert arrays["vectors"].shape == (12, LAYERS, DIM)
    offsets = arrays["offsets"]
    assert offsets.tolist() == [0, 5, 5, 7, 12, 12]
    for i, item in enumerate(sentences):
        found = arrays["vectors"][offsets[i] : offsets[i + 1]]
        np.testing.assert_array_equal(found.swapaxes(0, 1), item.layers)
    raw = arrays["tokens"].tobytes()
    tokens = [token for item in sentences for token in item.tokens]
    assert raw.decode().split("\n")[:-1] == tokens
    begin, end = arrays["token_offsets"][3:5]
    assert raw[begin : end - 1].decode() == "b\u00f6\u00f6k"
    assert arrays["spans"][:2].tolist() == [[0, 1], [2, 6]]
    assert arrays["places"].tolist() == [[0, line] for line in range(1, 6)]


def test_arrays_without_offsets_have_no_spans(tmp_path: Path) -> None:
    path = tmp_path / "vectors.npz"
    write_vectors(path, [sentence("a", offsets=False)])
    assert "spans" not in np.load(path)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_parquet_has_one_row_per_token(
    tmp_path: Path, sentences: list[SentenceVectors], dtype: str
) -> None:
    path = tmp_path / "vectors.parquet"
    write_vectors(path, sentences, dtype=dtype)
    table = pq.read_table(path)
    assert table.column_names == (
        "sentence token_index token file line start end layer_0 layer_1 layer_2".split()
    )
    rows = table.slice(0, 7).to_pylist()
    assert [row["sentence"] for row in rows] == [0, 0, 0, 0, 0, 2, 2]
    assert [row["token_index"] for row in rows] == [0, 1, 2, 3, 4, 0, 1]
    assert (rows[1]["token"], rows[1]["start"], rows[1]["end"]) == ("read", 2, 6)
    assert rows[5]["line"] == 3
    np.testing.assert_array_equal(
        rows[6]["layer_2"], sentences[2].layers[2, 1].astype(dtype).astype(float)
    )
    write_vectors(path, [sentence("a", offsets=False)], layer="top")
    row = pq.read_table(path).to_pylist()[0]
    assert row["start"] is None
    assert len(row["vector"]) == DIM


def table_of(n: int, **columns: Any) -> Any:
    columns = {
        "sentence": np.zeros(n, np.int64),
        "token": pa.array(["a"]).take(pa.array(np.zeros(n, np.int64))),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(n, np.float32)), 1),
        **columns,
    }
    return pa.table(columns)


def describe(table: Any, dim: int = 1, **about: Any) -> Any:
    layout = {"version": 1, "layer": "top", "dtype": "float32", "n_layers": 3, "dim": dim}
    return table.replace_schema_metadata({"elmokit": json.dumps({**layout, "about": about})})


@pytest.mark.parametrize("sentences", [-5, 10**9])
def test_parquet_with_an_invalid_number_of_sentences_is_rejected(
    tmp_path: Path, sentences: int
) -> None:
    pq.write_table(describe(table_of(10**5), sentences=sentences), tmp_path / "v.parquet")
    with pytest.raises(DataError, match="sentences"):
        open_vectors(tmp_path / "v.parquet")


def test_parquet_with_more_rows_than_its_size_allows_is_rejected(tmp_path: Path) -> None:
    n = 2**24  # run-length encoded, less than a megabyte
    table = table_of(n, vector=np.zeros(n, np.int8))
    pq.write_table(describe(table, dim=0), tmp_path / "v.parquet", compression="zstd")
    with pytest.raises(DataError, match="declares"):
        open_vectors(tmp_path / "v.parquet")


def test_repeated_token_of_parquet_is_in_memory_once(tmp_path: Path) -> None:
    path, n = tmp_path / "v.parquet", 1000
    token = pa.array(["x" * 2**16]).take(pa.array(np.zeros(n, np.int64)))
    table = describe(table_of(n, token=token))
    pq.write_table(table, path, compression="zstd", row_group_size=100)
    assert path.stat().st_size < 2**16
    with open_vectors(path) as vectors:
        tracemalloc.start()
        tokens = vectors[0].tokens
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert tokens == token.to_pylist()
    assert peak < 2**22


@pytest.mark.parametrize("descr", ["|S0", "("], ids=["empty type", "nested header"])
def test_npz_with_an_invalid_header_is_rejected(
    tmp_path: Path, sentences: list[SentenceVectors], descr: str
) -> None:
    path = tmp_path / "vectors.npz"
    write_vectors(path, sentences)
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored if name != "offsets"}
    np.savez(path, **arrays)
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': ({2**62},)}}\n".encode()
    if descr == "(":
        header = b"-" * 9000 + b"1\n"  # Python's parser raises a MemoryError
    with zipfile.ZipFile(path, "a") as archive:
        content = b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header
        archive.writestr("offsets.npy", content)
    with pytest.raises(DataError):
        open_vectors(path)


def test_values_that_are_not_numbers_are_rejected(
    tmp_path: Path, sentences: list[SentenceVectors]
) -> None:
    path = tmp_path / "vectors.npz"
    write_vectors(path, sentences)
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **{**arrays, "vectors": np.full(arrays["vectors"].shape, "a")})
    with open_vectors(path) as vectors, pytest.raises(DataError, match="sentence 0"):
        vectors[0]


def test_missing_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    path = tmp_path / "vectors.parquet"
    with pytest.raises(DependencyError, match=r"pip install 'elmokit\[arrow\]'"):
        write_vectors(path, [])
    path.touch()
    with pytest.raises(DependencyError, match=r"pip install 'elmokit\[arrow\]'"):
        open_vectors(path)
