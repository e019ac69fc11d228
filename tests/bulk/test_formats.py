"""Vector files: round trips through elmokit and through common libraries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from elmokit.bulk.formats import open_vectors, write_vectors
from elmokit.embed.vectors import SentenceVectors
from elmokit.errors import ConfigError, DataError, OutputError

pytest.importorskip("pyarrow.parquet", reason="pyarrow is the extra 'arrow'")

ALL_SUFFIXES = [".h5", ".hdf5", ".npz", ".safetensors", ".parquet"]
SUFFIXES = [".h5", ".npz", ".safetensors", ".parquet"]
DIM, LAYERS = 6, 3


def sentence(*tokens: str, offsets: bool = True, seed: int = 0) -> SentenceVectors:
    layers = np.random.default_rng([seed, len(tokens)]).normal(size=(LAYERS, len(tokens), DIM))
    spans, end = [], 0
    for token in tokens:
        spans.append((end, end + len(token)))
        end += len(token) + 1
    return SentenceVectors(list(tokens), spans if offsets else None, layers.astype(np.float32))


def some_sentences() -> list[SentenceVectors]:
    return [
        sentence("I", "read", "the", "b\u00f6\u00f6k", "."),
        sentence(),
        sentence("Yes", "\U0001f642", seed=1),
        sentence("I", "read", "the", "b\u00f6\u00f6k", ".", seed=2),
        sentence(),
    ]


@pytest.fixture
def sentences() -> list[SentenceVectors]:
    return some_sentences()


def expected(item: SentenceVectors, layer: str, dtype: str) -> np.ndarray:
    arrays = {
        "all": item.layers,
        "top": item.top,
        "average": item.average,
        "concat": np.concatenate(list(item.layers), axis=1),
        "1": item.layers[1],
        "mix": item.mix([0.2, 0.3, 0.5], 1.5),
    }
    return arrays[layer].astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("layer", ["all", "top", "average", "concat", "1", "mix"])
@pytest.mark.parametrize("suffix", ALL_SUFFIXES)
def test_round_trip(
    tmp_path: Path, sentences: list[SentenceVectors], suffix: str, layer: str, dtype: str
) -> None:
    path = tmp_path / f"vectors{suffix}"
    mix = {"mix": [0.2, 0.3, 0.5], "gamma": 1.5} if layer == "mix" else {}
    write_vectors(path, sentences, layer=layer, dtype=dtype, **mix)
    with open_vectors(path) as stored:
        assert len(stored) == len(sentences)
        assert stored.layout.layer == layer
        for given_, (tokens, vectors) in zip(sentences, stored, strict=True):
            assert tokens == given_.tokens
            assert vectors.dtype == dtype
            wanted = expected(given_, layer, dtype)
            if layer == "mix":  # the order of the summation is not part of the format
                np.testing.assert_allclose(
                    vectors, wanted, rtol=2e-3 if dtype == "float16" else 1e-5
                )
            else:
                np.testing.assert_array_equal(vectors, wanted)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_stored_file_is_a_sequence(
    tmp_path: Path, sentences: list[SentenceVectors], suffix: str
) -> None:
    path = tmp_path / f"vectors{suffix}"
    write_vectors(path, sentences)
    with open_vectors(path) as stored:
        assert stored[-3].tokens == ["Yes", "\U0001f642"]
        assert [item.tokens for item in stored[2:0:-1]] == [["Yes", "\U0001f642"], []]
        assert "5 sentences" in repr(stored)
        with pytest.raises(IndexError, match=r"Invalid index 5: .* has 5 sentences"):
            stored[5]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_empty_input_can_be_stored(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"vectors{suffix}"
    write_vectors(path, [])
    assert len(open_vectors(path)) == 0
    write_vectors(path, [sentence(), sentence()])
    with open_vectors(path) as stored:
        assert [(s.tokens, s.vectors.shape) for s in stored] == [([], (LAYERS, 0, DIM))] * 2


@pytest.mark.parametrize("suffix", [".h5", ".npz", ".safetensors"])
def test_any_python_string_is_preserved(tmp_path: Path, suffix: str) -> None:
    odd = ["", " ", "a b", "new\nline", "\x00", "\ud800", "\ufeff", "\u2028", "x" * 100_000, '"']
    path = tmp_path / f"vectors{suffix}"
    write_vectors(path, [sentence(*odd, offsets=False), sentence("after")])
    with open_vectors(path) as stored:
        assert stored[0].tokens == odd
        assert stored[1].tokens == ["after"]


def test_parquet_identifies_strings_that_it_cannot_store(tmp_path: Path) -> None:
    path = tmp_path / "vectors.parquet"
    with pytest.raises(DataError, match=r"ud800.*lone surrogate"):
        write_vectors(path, [sentence("fine", "\ud800")])
    write_vectors(path, [sentence("", "a b", "new\nline", "\x00", "x" * 100_000)])
    assert open_vectors(path)[0].tokens[:4] == ["", "a b", "new\nline", "\x00"]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    words=st.lists(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=5))),
    suffix=st.sampled_from(SUFFIXES),
)
def test_round_trip_of_arbitrary_sentences(
    tmp_path: Path, words: list[list[str]], suffix: str
) -> None:
    items = [sentence(*tokens, seed=i) for i, tokens in enumerate(words)]
    path = tmp_path / f"vectors{suffix}"
    write_vectors(path, items)
    with open_vectors(path) as stored:
        assert [s.tokens for s in stored] == words
        for item, found in zip(items, stored, strict=True):
            np.testing.assert_array_equal(item.layers, found.vectors)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_same_vectors_give_the_same_bytes(
    tmp_path: Path, sentences: list[SentenceVectors], suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = tmp_path / f"one{suffix}", tmp_path / f"other{suffix}"
    write_vectors(one, sentences)
    monkeypatch.setattr("time.time", lambda: 2e9)  # zip files would contain the time
    write_vectors(other, sentences)
    assert one.read_bytes() == other.read_bytes()


# ------------------------------------------------------------------------------------ invalid files


def test_unknown_suffix_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'\.hdf' .* Did you mean .*\.npz, \.safetensors"):
        write_vectors(tmp_path / "vectors.hdf", [])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"layer": "last"}, "'last': expected 0 to 2, top, average, concat, mix or all"),
        ({"dtype": "float8"}, "Invalid value for dtype: 'float8'. Expected 'float32' or"),
        ({"layer": "mix"}, "layer='mix' requires mix="),
        ({"mix": [1, 0, 0]}, "requires layer='mix'"),
        ({"layer": "mix", "mix": [1, 0]}, "expected 3 finite weights"),
        ({"layer": "mix", "mix": [1, 0, 0], "gamma": float("nan")}, "gamma"),
    ],
)
def test_incompatible_settings_are_rejected(
    tmp_path: Path, wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        write_vectors(tmp_path / "vectors.h5", [sentence("a")], **wrong)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("value", "dtype"), [(1e5, "float16"), (np.inf, "float32")])
def test_values_that_overflow_the_dtype_are_an_error(
    tmp_path: Path, value: float, dtype: str
) -> None:
    item = sentence("huge", "fine")
    item.layers[1, 0, 2] = value
    with pytest.raises(DataError, match=f"'huge fine' .* too large for {dtype}"):
        write_vectors(tmp_path / "vectors.npz", [item], dtype=dtype)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_damaged_and_unrelated_files_are_an_error(
    tmp_path: Path, sentences: list[SentenceVectors], suffix: str
) -> None:
    path = tmp_path / f"vectors{suffix}"
    write_vectors(path, sentences)
    whole = path.read_bytes()
    for damaged in (b"", b"no such thing", whole[: len(whole) // 2], whole[:-20], whole[:9]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=path.name):
            open_vectors(path)
    with pytest.raises(DataError, match=r"vector file .* does not exist"):
        open_vectors(tmp_path / f"missing{suffix}")


def test_arrays_of_other_programs_are_an_error(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    path = tmp_path / "foreign.npz"
    np.savez(path, vectors=np.zeros((2, 2), np.float32))
    with pytest.raises(DataError):
        open_vectors(path)
    np.savez_compressed(path, vectors=np.zeros((2, 2), np.float32))
    with pytest.raises(DataError, match="compressed"):
        open_vectors(path)
    np.savez(path, vectors=np.array([{"a": 1}], dtype=object))
    with pytest.raises(DataError):
        open_vectors(path)
    save_file({"vectors": np.zeros((2, 2), np.float32)}, path := tmp_path / "foreign.safetensors")
    with pytest.raises(DataError):
        open_vectors(path)
    with h5py.File(path := tmp_path / "weights.hdf5", "w") as file:
        file.create_group("RNN_0")
    with pytest.raises(DataError, match="no dataset '0'"):
        open_vectors(path)


def test_files_of_newer_versions_are_rejected(
    tmp_path: Path, sentences: list[SentenceVectors]
) -> None:
    path = tmp_path / "vectors.h5"
    write_vectors(path, sentences)
    with h5py.File(path, "r+") as file:
        description = file.attrs["elmokit"].replace(b'"version": 1', b'"version": 2')
        file.attrs["elmokit"] = np.bytes_(description)
    with pytest.raises(DataError, match="format version 2, but elmokit expects 1"):
        open_vectors(path)


def test_inconsistent_arrays_are_an_error(tmp_path: Path, sentences: list[SentenceVectors]) -> None:
    path = tmp_path / "vectors.npz"
    write_vectors(path, sentences)
    with np.load(path) as stored:
        arrays = dict(stored)
    arrays["vectors"] = arrays["vectors"][:-1]
    np.savez(path, **arrays)
    with pytest.raises(DataError, match="'vectors' has length 11, but 'offsets' ends at 12"):
        open_vectors(path)
    del arrays["tokens"]
    np.savez(path, **arrays)
    with pytest.raises(DataError, match="no array 'tokens'"):
        open_vectors(path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_unwritable_path_is_an_error(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"vectors{suffix}"
    path.mkdir()
    with pytest.raises(OutputError):
        write_vectors(path, [sentence("a")])
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("suffix", "old", "new"),
    [
        (".npz", b"'shape': (", b"'shape': ["),  # numpy raises tokenize.TokenError
        (".safetensors", (5).to_bytes(8, "little"), (2**22).to_bytes(8, "little")),  # an offset
    ],
)
def test_library_errors_are_reported_as_damaged_files(
    sentences: list[SentenceVectors], tmp_path: Path, suffix: str, old: bytes, new: bytes
) -> None:
    path = tmp_path / f"vectors{suffix}"
    write_vectors(path, sentences)
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    with pytest.raises(DataError), open_vectors(path) as stored:
        list(stored)
