"""Read untrusted HDF5 files. All kinds of damage raise the same type of error.

Datasets are rejected if they are links, if they are stored in other files, if reading them needs a
buffer much larger than the dataset, or if they declare far more data than the file contains.

Strings of variable length are read without the HDF5 library, because if a file is damaged, the
library can allocate the declared length of a string, up to 4 GB, or hang. See "Global Heap" in the
"HDF5 File Format Specification".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, mmap
from pathlib import Path
from struct import unpack_from
from typing import Any

from elmokit.errors import DataError, ElmoError
from elmokit.storage.hdf5_writer import MAX_ATTRIBUTE_BYTES
from elmokit.storage.regular import check_regular_files

_MAX_CHUNK_BYTES = 1 << 26
# Weights can hardly be compressed. The ratio is not checked for small datasets.
_MAX_COMPRESSION_RATIO = 100
_MIN_CHECKED_BYTES = 1 << 24


def open_hdf5(path: Path, *, error: type[ElmoError] = DataError) -> Any:
    """Open an `h5py.File` for reading.

    Args:
        path: The file.
        error: The type of the error to raise if the file is missing or damaged.
    """
    import h5py

    check_regular_files(path, error)
    with hdf5_errors(path, error=error):
        return h5py.File(path, "r")


@contextmanager
def hdf5_errors(path: Path, *, error: type[ElmoError] = DataError) -> Iterator[None]:
    """Convert all exceptions that h5py raises for damaged files to `error`."""
    try:
        yield
    except ElmoError:
        raise
    except FileNotFoundError:
        raise error(f"{path} does not exist.") from None
    except Exception as reason:  # h5py raises many types of exceptions
        raise error(
            f"{path} cannot be read as HDF5 ({reason}). It may be truncated, damaged or in another "
            "format. Download or create it again."
        ) from reason


def find_dataset(
    file: Any, name: str, *, error: type[ElmoError] = DataError, is_string: bool = False
) -> Any:
    """Return a dataset after validating how it is stored, or None if it does not exist.

    Args:
        file: The open file.
        name: The path of the dataset in the file.
        error: The type of the error to raise for links, for data in other files, for values of
            variable length, and for sizes far larger than the stored data.
        is_string: Whether values of variable length are allowed; see `read_string`.
    """
    import h5py

    item = file
    for part in name.split("/"):
        link = item.get(part, getlink=True) if isinstance(item, h5py.Group) else None
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise error(
                f"'{name}' in {file.filename} is a link: expected a dataset stored in the file "
                "itself."
            )
        item = item[part]
    if not isinstance(item, h5py.Dataset):
        return None
    if item.external or item.is_virtual:
        raise error(
            f"'{name}' in {file.filename} is stored in other files: expected a dataset stored in "
            "the file itself."
        )
    size = int(item.nbytes)
    stored = min(item.id.get_storage_size(), file.id.get_filesize())
    chunk = math.prod(item.chunks or ()) * item.dtype.itemsize
    limit = _MIN_CHECKED_BYTES + _MAX_COMPRESSION_RATIO * stored
    if chunk > max(_MAX_CHUNK_BYTES, size) or size > limit:
        raise error(
            f"'{name}' in {file.filename} declares {size:,} bytes in chunks of {chunk:,}, but only "
            f"{stored:,} bytes are stored. The file is damaged or malicious."
        )
    if item.dtype.hasobject and not is_string:
        raise error(f"'{name}' in {file.filename} has values of variable length; expected numbers.")
    return item


def read_string(file: Any, name: str) -> Any:
    """Return the string in a dataset as bytes, or None if the dataset does not exist."""
    import h5py

    item = find_dataset(file, name, is_string=True)
    if item is None or not item.dtype.hasobject:
        return item and item[0]
    start = item.id.get_offset()
    is_string = h5py.check_string_dtype(item.dtype) and item.size == 1
    if not is_string or start is None:
        raise DataError(f"'{name}' in {file.filename} is not a single string.")
    with Path(file.filename).open("rb") as raw, mmap(raw.fileno(), 0, access=ACCESS_READ) as data:
        length, address, index = unpack_from("<IQI", data, start)
        heap = file.userblock_size + address
        size = unpack_from("<Q", data, heap + 8)[0] if length else 0
        position, number = heap + 16, -1
        while position < heap + size and number != 0:  # object 0 is the free space
            number, stored = unpack_from("<H6xQ", data, position)
            position += 16
            if number == index and length <= stored:
                return data[position : position + length]
            position += stored + -stored % 8
    if length:
        raise DataError(f"'{name}' in {file.filename} is damaged: its text is missing.")
    return b""


def read_attribute(item: Any, name: str) -> bytes | None:
    """Return a text that `Hdf5Writer` stored in attributes, or None if there is no such attribute.

    Args:
        item: The file, or a dataset in it.
        name: The name of the attribute.
    """
    import h5py

    parts: list[bytes] = []
    while (part := f"{name}{len(parts) or ''}") in item.attrs:
        attribute = h5py.h5a.open(item.id, part.encode())
        if attribute.dtype.kind != "S" or attribute.get_storage_size() > MAX_ATTRIBUTE_BYTES:
            raise DataError(
                f"The attribute '{part}' in {item.file.filename} is not a string of fixed length."
            )
        parts.append(bytes(item.attrs[part]))
    return b"".join(parts) if parts else None
