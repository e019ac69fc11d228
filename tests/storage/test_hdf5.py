"""HDF5 files with external references, excessive sizes or damage."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import elmokit
from elmokit.errors import DataError, ElmoError, WeightsError
from elmokit.sources.resolve import load_parts
from elmokit.storage.hdf5 import find_dataset, hdf5_errors, open_hdf5, read_attribute, read_string
from tests.sources.models import make_parts, write_hdf5

SECRET = np.arange(6.0, dtype=np.float32).reshape(2, 3)


def external_link(file: h5py.File, other: Path) -> None:
    file["d"] = h5py.ExternalLink(str(other), "/d")


def link_to_a_group(file: h5py.File, other: Path) -> None:
    file["g"] = h5py.ExternalLink(str(other), "/")
    file["d"] = h5py.SoftLink("/g/d")


def external_storage(file: h5py.File, other: Path) -> None:
    file.create_dataset("d", (2, 3), "f4", external=[(str(other), 0, 24)])


def virtual_dataset(file: h5py.File, other: Path) -> None:
    layout = h5py.VirtualLayout((2, 3), "f4")
    layout[:] = h5py.VirtualSource(other, "d", (2, 3))
    file.create_virtual_dataset("d", layout)


def huge_chunk(file: h5py.File, other: Path) -> None:
    file.create_dataset("d", (2, 3), "f4", chunks=(2**14, 2**14), maxshape=(None, None))


def nothing_stored(file: h5py.File, other: Path) -> None:
    file.create_dataset("d", (2**16, 2**16), "f4")


@pytest.mark.parametrize(
    "make",
    [
        external_link,
        link_to_a_group,
        external_storage,
        virtual_dataset,
        huge_chunk,
        nothing_stored,
    ],
)
def test_datasets_stored_outside_the_file_are_rejected(
    tmp_path: Path, make: Callable[[h5py.File, Path], None]
) -> None:
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["d"] = SECRET
    with h5py.File(tmp_path / "file.h5", "w") as file:
        make(file, tmp_path / "other.h5")
    with open_hdf5(tmp_path / "file.h5") as file, pytest.raises(DataError):
        find_dataset(file, "d")


def test_regular_dataset_is_found_and_a_missing_one_is_none(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file["group/d"] = SECRET
        file.create_dataset("packed", data=np.zeros((2**12, 2**8)), compression="gzip")
    with open_hdf5(tmp_path / "file.h5") as file:
        np.testing.assert_array_equal(find_dataset(file, "group/d")[()], SECRET)
        assert find_dataset(file, "packed").shape == (2**12, 2**8)
        for name in ("group", "other", "group/d/e", "group/x"):
            assert find_dataset(file, name) is None


def test_weights_and_vectors_of_other_files_are_not_read(tmp_path: Path) -> None:
    folder = write_hdf5(make_parts(), tmp_path / "old")
    (folder / "weights.hdf5").rename(tmp_path / "other.h5")
    with h5py.File(tmp_path / "other.h5") as other, h5py.File(folder / "weights.hdf5", "w") as file:
        for name in other:
            file[name] = h5py.ExternalLink(str(tmp_path / "other.h5"), f"/{name}")
    with pytest.raises(WeightsError, match="link"):
        load_parts(folder)
    with h5py.File(tmp_path / "other.h5", "w") as other:
        other["d"] = SECRET
    with h5py.File(tmp_path / "vectors.h5", "w") as file:
        file["0"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/d")
    with pytest.raises(ElmoError):
        elmokit.open_vectors(tmp_path / "vectors.h5")


def test_named_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError):
        open_hdf5(tmp_path / "pipe")


def test_all_exceptions_become_one_error(tmp_path: Path) -> None:
    for raised in (RuntimeError("a"), KeyError("b"), ValueError("c"), TypeError("d")):
        with pytest.raises(WeightsError), hdf5_errors(tmp_path / "x", error=WeightsError):
            raise raised


def test_flipped_bytes_are_elmo_errors_or_harmless(tmp_path: Path) -> None:
    folder = write_hdf5(make_parts(), tmp_path / "old")
    weights = folder / "weights.hdf5"
    whole = weights.read_bytes()
    rng = random.Random(0)
    for _ in range(60):
        damaged = bytearray(whole)
        for _ in range(rng.choice((1, 4, 16))):  # most of the structure is at the beginning
            damaged[rng.randrange(min(len(damaged), 6000))] = rng.randrange(256)
        weights.write_bytes(bytes(damaged))
        with suppress(ElmoError):
            load_parts(folder)


def test_dataset_larger_than_the_file_is_rejected(tmp_path: Path) -> None:
    shape, chunk = (2**16, 2**10), (2**14, 2**10)
    with h5py.File(tmp_path / "file.h5", "w") as file:
        data = file.create_dataset("d", shape, "f4", chunks=chunk, compression="gzip")
        for row in range(0, shape[0], chunk[0]):
            data.id.write_direct_chunk((row, 0), b"x" * 12345)
    content = (tmp_path / "file.h5").read_bytes()
    # The sizes of the chunks, which HDF5 does not check until it reads them.
    huge = content.replace((12345).to_bytes(4, "little"), (2**31).to_bytes(4, "little"))
    assert huge != content
    (tmp_path / "file.h5").write_bytes(huge)
    with open_hdf5(tmp_path / "file.h5") as file, pytest.raises(DataError, match="declares"):
        find_dataset(file, "d")


@pytest.mark.parametrize("options", [{}, {"userblock_size": 512}, {"libver": "latest"}], ids=str)
def test_string_longer_than_the_file_is_rejected(tmp_path: Path, options: dict[str, Any]) -> None:
    path = tmp_path / "file.h5"
    with h5py.File(path, "w", **options) as file:
        file.create_dataset("text", (1,), h5py.string_dtype())[0] = "one two"

    def read() -> bytes:
        with open_hdf5(path) as file, pytest.raises(DataError, match="variable length"):
            find_dataset(file, "text")
        with open_hdf5(path) as file:
            text: bytes = read_string(file, "text")
            return text

    assert read() == b"one two"
    content = path.read_bytes()
    # A string is stored as its length, and the address and the index in a global heap.
    heap_at = content.index(b"GCOL")
    heap = (heap_at - options.get("userblock_size", 0)).to_bytes(8, "little")
    length = (7).to_bytes(4, "little") + heap
    assert content.count(length) == 1
    path.write_bytes(content.replace(length, (2**31 + 7).to_bytes(4, "little") + heap))
    with pytest.raises(DataError, match="text is missing"):
        read()
    # The HDF5 library would never return.
    path.write_bytes(content[: heap_at + 16] + bytes(2000) + content[heap_at + 2016 :])
    with pytest.raises(DataError, match="text is missing"):
        read()


def test_attributes_that_are_not_strings_of_fixed_length_are_rejected(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.attrs["text"] = np.bytes_(b"one two")
        file.attrs["number"] = 5.0
        file.attrs["variable"] = "one two"
        file.attrs["several"] = ["one", "two"]
    with open_hdf5(tmp_path / "file.h5") as file:
        assert read_attribute(file, "missing") is None
        assert read_attribute(file, "text") == b"one two"
        for name in ("number", "variable", "several"):
            with pytest.raises(DataError, match=f"'{name}'"):
                read_attribute(file, name)
