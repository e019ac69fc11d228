"""`.npz` files: the arrays of arrays.py in a zip file, for `numpy.load` (without pickle).

The zip file is not compressed, because vectors do not compress, so that arrays can be
memory-mapped. The array `elmokit` contains the description, as the bytes of a JSON text.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from elmokit.bulk.formats.arrays import ArrayVectors, corpus_columns
from elmokit.bulk.formats.block import Block
from elmokit.bulk.formats.columns import Array, Column
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.reading import (
    DESCRIPTION,
    About,
    describe,
    read_description,
)
from elmokit.errors import DataError

_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_LONGEST_DESCRIPTION = 2**24


def write(path: Path, blocks: Iterable[Block], layout: Layout, about: About) -> None:
    """Write the vectors of a corpus."""
    corpus = list(blocks)  # the file starts with the lengths of the arrays
    description = np.frombuffer(describe(layout, about()).encode(), dtype=np.uint8)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for column in [Column.of(DESCRIPTION, description), *corpus_columns(corpus, layout)]:
            # The default date of a ZipInfo is 1980-01-01: the same input gives the same bytes.
            member = zipfile.ZipInfo(f"{column.name}.npy")
            with archive.open(member, "w", force_zip64=True) as file:
                _write_npy(file, column)


def _write_npy(file: IO[bytes], column: Column) -> None:
    values = {
        "descr": npy.dtype_to_descr(column.dtype.newbyteorder("<")),
        "fortran_order": False,
        "shape": column.shape,
    }
    npy.write_array_header_1_0(file, values)
    column.write(file)


class Vectors(ArrayVectors):
    """The reader; all arrays are memory-mapped."""

    def __init__(self, path: Path) -> None:
        try:
            with zipfile.ZipFile(path) as archive, path.open("rb") as file:
                members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
                maps = {m.filename.removesuffix(".npy"): _map(path, file, m) for m in members}
        except (zipfile.BadZipFile, ValueError, struct.error) as error:
            raise DataError(f"it is not a complete .npz file ({error})") from error
        described = maps.get(DESCRIPTION, np.zeros(0, np.uint8))[:_LONGEST_DESCRIPTION]
        layout, about = read_description(described.tobytes() or None)
        lengths = {name: len(array) for name, array in maps.items()}
        super().__init__(dict(maps), lengths, path=path, layout=layout, about=about)

    def close(self) -> None:
        """Release the memory maps."""
        self._arrays = {}


def _map(path: Path, file: IO[bytes], member: zipfile.ZipInfo) -> Array:
    """Memory-map an uncompressed array of a zip file."""
    if member.compress_type != zipfile.ZIP_STORED:
        raise DataError(f"its array '{member.filename}' is compressed; expected no compression")
    file.seek(member.header_offset)
    header = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    start = member.header_offset + _LOCAL_HEADER.size + header[-2] + header[-1]
    file.seek(start)
    version = npy.read_magic(file)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read_header(file)
    if dtype.hasobject or fortran or not shape:
        raise DataError(f"its array '{member.filename}' is not a plain array in C order")
    offset = file.tell()
    size = dtype.itemsize * int(np.prod(shape, dtype=object))
    if offset + size > start + member.file_size:
        raise DataError(f"its array '{member.filename}' is truncated")
    if size == 0:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", offset, shape)
