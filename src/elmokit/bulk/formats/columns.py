"""Write arrays that are larger than memory, in pieces. Their size must be known in advance."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_SAFETENSORS_NAMES = {
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "uint8": "U8",
}


@dataclass(frozen=True)
class Column:
    """An array of a file.

    Attributes:
        name: Its name in the file.
        dtype: Its number type.
        shape: Its shape.
        pieces: Returns the pieces of the array in order, divided along the first axis.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Callable[[], Iterable[Array]]

    @classmethod
    def of(cls, name: str, array: Array) -> Column:
        """Create a column from an array in memory."""
        return cls(name, array.dtype, array.shape, lambda: (array,))

    @property
    def n_bytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def write(self, file: IO[bytes]) -> None:
        """Write the values, little-endian, in C order."""
        written = 0
        for piece in self.pieces():
            values = np.ascontiguousarray(piece, dtype=self.dtype.newbyteorder("<"))
            written += values.nbytes
            if values.nbytes:
                file.write(values.reshape(-1).view(np.uint8).data)
        if written != self.n_bytes:  # the offsets of the next arrays would be wrong
            raise AssertionError(f"'{self.name}' has {written} bytes instead of {self.n_bytes}")


def write_safetensors(
    file: IO[bytes], columns: Sequence[Column], metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file; the library needs all arrays in memory.

    Args:
        file: The file.
        columns: The arrays, wide types first so that each is aligned.
        metadata: Strings for the header.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for column in columns:
        begin, end = end, end + column.n_bytes
        header[column.name] = {
            "dtype": _SAFETENSORS_NAMES[column.dtype.name],
            "shape": list(column.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the first array is aligned
    file.write(struct.pack("<Q", len(text)) + text)
    for column in columns:
        column.write(file)
