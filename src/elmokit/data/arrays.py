"""Write arrays to files, and memory-map them for reading.

Arrays are written with `file.write`, which raises a helpful error if the disk is full. In that
case, writing to a memory map would crash the process, and `np.save` would not report the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.data.layout import prepare_again_hint
from elmokit.errors import DataError
from elmokit.progress import plural


def save_array(path: Path, values: NDArray[np.generic]) -> None:
    """Write a .npy file."""
    save_rows(path, values.shape, values.dtype, [values])


def save_rows(
    path: Path,
    shape: tuple[int, ...],
    dtype: np.dtype[np.generic],
    chunks: Iterable[NDArray[np.generic]],
) -> None:
    """Write a .npy file in chunks, so that the array does not need to fit into memory."""
    with path.open("wb") as file:
        header = {"descr": dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for values in chunks:
            file.write(np.ascontiguousarray(values, dtype).data)


def map_raw_array(path: Path, dtype: str, n: int) -> NDArray[Any]:
    """Memory-map a file that contains `n` values without a header.

    Raises:
        DataError: The file cannot be read, or has the wrong size.
    """
    expected = n * np.dtype(dtype).itemsize
    try:
        size = path.stat().st_size
        if size == expected:
            return np.memmap(path, dtype, "r", shape=(n,))
    except (OSError, ValueError) as error:
        raise _read_error(path, error) from None
    raise DataError(
        f"{path} has {plural(size, 'byte')}: expected {expected:,}. It is truncated, or belongs to "
        f"another corpus. {prepare_again_hint(path)}"
    )


def map_array(path: Path, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Memory-map a .npy file.

    Raises:
        DataError: The file cannot be read, or has the wrong dtype or shape.
    """
    try:
        values = np.lib.format.open_memmap(path, mode="r")
        if path.stat().st_size > values.offset + values.nbytes:
            raise ValueError("it contains more than one array")
    except Exception as error:  # NumPy parses the header as Python code; any error can occur
        raise _read_error(path, error) from None
    if (values.dtype, values.shape) == (np.dtype(dtype), shape):
        return values
    raise DataError(
        f"{path} contains {values.dtype} {values.shape}: expected {np.dtype(dtype)} {shape}. The "
        f"file belongs to another corpus. {prepare_again_hint(path)}"
    )


def _read_error(path: Path, error: Exception) -> DataError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return DataError(f"{path} cannot be read: {reason}. {prepare_again_hint(path)}")
