"""Arrays in files: written with plain writes, read through memory maps.

If the disk is full, writing through a memory map crashes the process, and numpy's own writer raises
an error that does not state the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.data.layout import how_to_prepare_again
from elmokit.errors import DataError


def save_array(path: Path, values: NDArray[np.generic]) -> None:
    """Write a .npy file."""
    save_rows(path, values.shape, values.dtype, [values])


def save_rows(
    path: Path,
    shape: tuple[int, ...],
    dtype: np.dtype[np.generic],
    parts: Iterable[NDArray[np.generic]],
) -> None:
    """Write a .npy file in parts, with only one part in memory at a time."""
    with path.open("wb") as file:
        header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for values in parts:
            file.write(np.ascontiguousarray(values, dtype).data)


def map_values(path: Path, dtype: str, n: int) -> NDArray[Any]:
    """Map a file of `n` values without a header into memory, read-only.

    Raises:
        DataError: It cannot be read, or has the wrong size.
    """
    expected = n * np.dtype(dtype).itemsize
    try:
        size = path.stat().st_size
        if size == expected:
            return np.memmap(path, dtype, "r", shape=(n,))
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    raise DataError(
        f"{path} has {size:,} bytes, expected {expected:,}: it is truncated, or from another "
        f"corpus. {how_to_prepare_again(path)}"
    )


def map_array(path: Path, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Map a .npy file into memory, read-only.

    Raises:
        DataError: It cannot be read, or has another type or shape.
    """
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(values, np.memmap) and path.stat().st_size > values.offset + values.nbytes:
            raise ValueError("it contains more than one array")  # reading it could take hours
    except Exception as error:  # numpy does not catch errors of Python's tokenizer
        raise _unreadable(path, error) from None
    if isinstance(values, np.ndarray) and (values.dtype, values.shape) == (np.dtype(dtype), shape):
        return values
    kind = f"{values.dtype} {values.shape}" if isinstance(values, np.ndarray) else "an archive"
    raise DataError(
        f"{path} contains {kind}, expected {np.dtype(dtype)} {shape}: it is from another corpus. "
        f"{how_to_prepare_again(path)}"
    )


def _unreadable(path: Path, error: Exception) -> DataError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return DataError(f"{path} cannot be read: {reason}. {how_to_prepare_again(path)}")
