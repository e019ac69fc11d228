"""The HDF5 library can read and extend the files of `Hdf5Writer`."""

from __future__ import annotations

import io
from pathlib import Path

import h5py
import numpy as np
import pytest

from elmokit.storage.hdf5 import read_attribute
from elmokit.storage.hdf5_writer import Hdf5Writer


def write(path: Path, count: int, *, named: bool = True) -> None:
    """Write datasets whose values and lengths depend on their number."""
    with path.open("wb") as file:
        writer = Hdf5Writer(file)
        for number in range(count):
            writer.add_numbers(values(number), {"tokens": f"käse {number}".encode()})
        if named:
            writer.add_string("sentence_to_index", "ü" * 10_000)
        writer.finish({"elmokit": b"the file"})


def values(number: int) -> np.ndarray:
    return np.full((number % 4, 3), number % 1000, np.float16)


def check(file: h5py.File, number: int) -> None:
    dataset = file[str(number)]
    np.testing.assert_array_equal(dataset[...], values(number))
    assert dict(dataset.attrs) == {"tokens": f"käse {number}".encode()}


# A leaf of the tree has up to 8 names, and other nodes have up to 32 children.
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 255, 256, 257, 8191, 8192, 8193])
def test_library_finds_every_dataset(tmp_path: Path, count: int, named: bool) -> None:
    path = tmp_path / "file.h5"
    write(path, count, named=named)
    with h5py.File(path) as file:
        expected = {str(number) for number in range(count)}
        assert set(file) == (expected | {"sentence_to_index"} if named else expected)
        assert "x" not in file
        assert dict(file.attrs) == {"elmokit": b"the file"}
        for number in {*range(min(count, 300)), count - 1}:
            check(file, number)
        if named:
            assert file["sentence_to_index"][0].decode() == "ü" * 10_000


def test_file_without_numbered_datasets(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    write(path, 0)
    with h5py.File(path) as file:
        assert list(file) == ["sentence_to_index"]


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_dtypes_and_ranks(tmp_path: Path, dtype: str) -> None:
    path = tmp_path / "file.h5"
    numbers = np.random.default_rng(0).normal(size=(3, 4, 5)).astype(dtype)
    with path.open("wb") as file:
        writer = Hdf5Writer(file)
        writer.add_numbers(numbers[:, 1:3], {})  # not contiguous
        writer.finish({})
    with h5py.File(path) as file:
        assert file["0"].dtype == np.dtype(dtype)
        np.testing.assert_array_equal(file["0"][...], numbers[:, 1:3])


def test_names_with_slashes_create_groups(tmp_path: Path) -> None:
    names = [f"group{i % 3}/{'x' * i}/käse {i}" for i in range(50)]
    with (tmp_path / "file.h5").open("wb") as file:
        writer = Hdf5Writer(file)
        for i, name in enumerate(["a", "/b//./c", *names]):
            writer.add_numbers(values(i), name=name)
        writer.finish()
    with h5py.File(tmp_path / "file.h5") as file:
        assert set(file) == {"a", "b", "group0", "group1", "group2"}
        for i, name in enumerate(["a", "b/c", *names]):
            np.testing.assert_array_equal(file[name][...], values(i))


@pytest.mark.parametrize("name", ["", "/", ".", "a", "a/b", "group", "group/c", "a\0"])
def test_invalid_names_are_rejected(name: str) -> None:
    writer = Hdf5Writer(io.BytesIO())
    for first in ("a", "group/c"):
        writer.add_numbers(values(1), name=first)
    with pytest.raises(ValueError):
        writer.add_numbers(values(1), name=name)


def test_library_can_extend_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file.h5"
    count = 1000
    write(path, count)
    with h5py.File(path, "a") as file:
        for number in range(count, 2 * count):
            dataset = file.create_dataset(str(number), data=values(number))
            dataset.attrs["tokens"] = np.bytes_(f"käse {number}".encode())
        for number in range(0, count, 3):
            del file[str(number)]
        file["1"].attrs["more"] = np.arange(1000)
        file["2"][...] = 0
        file.attrs["elmokit"] = "changed"
        file["group/dataset"] = 5
    with h5py.File(path) as file:
        kept = [number for number in range(2 * count) if number >= count or number % 3]
        assert set(file) == {*map(str, kept), "sentence_to_index", "group"}
        for number in set(kept) - {1, 2}:
            check(file, number)
        assert file["1"].attrs["more"][999] == 999
        assert file["1"].attrs["tokens"] == "käse 1".encode()
        assert not file["2"][...].any()
        assert file.attrs["elmokit"] == "changed"
        assert file["group/dataset"][()] == 5


@pytest.mark.parametrize("length", [1, 7, 64_999, 65_000, 65_001, 200_000])
def test_long_attributes_are_split(tmp_path: Path, length: int) -> None:
    path = tmp_path / "file.h5"
    text = ("0123456789ü" * length).encode()[:length]
    with path.open("wb") as raw:
        writer = Hdf5Writer(raw)
        writer.add_numbers(values(1), {"tokens": text, "more": b"x"})
        writer.finish({"elmokit": text})
    with h5py.File(path) as file:
        assert file["0"].attrs["tokens"] == text[:65_000]
        assert read_attribute(file["0"], "tokens") == read_attribute(file, "elmokit") == text
        assert read_attribute(file["0"], "more") == b"x"
        np.testing.assert_array_equal(file["0"][...], values(1))


def test_bytes_depend_only_on_the_content(tmp_path: Path) -> None:
    write(tmp_path / "one.h5", 100)
    write(tmp_path / "two.h5", 100)
    assert (tmp_path / "one.h5").read_bytes() == (tmp_path / "two.h5").read_bytes()


def test_full_disk_raises_an_error() -> None:
    class FullDisk(io.BytesIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            if self.tell() + len(data) > 1000:
                raise OSError(28, "No space left on device")
            return super().write(data)

    writer = Hdf5Writer(FullDisk())
    with pytest.raises(OSError, match="No space left"):
        writer.add_numbers(np.zeros((300, 1), np.float32), {})
