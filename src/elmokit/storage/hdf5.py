"""Read untrusted HDF5 files. All kinds of damage raise the same type of error.

Datasets are rejected if they are links, if they are stored in other files, if reading them needs a
buffer much larger than the dataset, or if they declare far more data than the file contains.

Strings are read without the HDF5 library: in damaged files, it can allocate the declared length of
a string, up to 4 GB, or never return. See "Data Object Headers" and "Global Heap" in the "HDF5 File
Format Specification".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import FileIO
from mmap import ACCESS_READ, mmap
from pathlib import Path
from struct import unpack_from
from typing import Any

from elmokit.errors import DataError, ElmoError
from elmokit.storage.regular import check_regular_files

_MAX_CHUNK_BYTES = 1 << 26
# Weights are hardly compressible. The ratio is not checked for small datasets.
_MAX_COMPRESSION_RATIO = 100
_MIN_CHECKED_BYTES = 1 << 24

# Types of messages in object headers, a flag, and the size of a reference to a string.
_ATTRIBUTE, _CONTINUATION = 12, 16
_SHARED = 2
_REFERENCE_BYTES = 16


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
    except Exception as reason:  # h5py raises many types
        raise error(
            f"{path} cannot be read as HDF5 ({reason}). It may be truncated, damaged or in another "
            "format; download or write it again."
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
        raise error(f"'{name}' in {file.filename} has a variable length; expected numbers.")
    return item


def read_string(file: Any, name: str) -> Any:
    """Return the string in a dataset as bytes, or None if the dataset does not exist."""
    item = find_dataset(file, name, is_string=True)
    if item is None or not item.dtype.hasobject:
        return item and item[0]
    with _mapped(file) as data:
        return _read_string(file, data, name, item.id, [item.id.get_offset()])


def read_attribute(file: Any, item: Any, name: str) -> Any:
    """Return an attribute, a string as bytes, or None if it does not exist.

    Args:
        file: The open file.
        item: The file, or a group or dataset in it.
        name: The name of the attribute.
    """
    import h5py

    attributes = item.attrs
    if name not in attributes:
        return None
    attribute = h5py.h5a.open(item.id, name.encode())
    if not attribute.dtype.hasobject:
        return attributes[name]
    start = file.userblock_size + h5py.h5o.get_info(item.id).addr
    with _mapped(file) as data:
        places = _find_attribute(data, file.userblock_size, start, name.encode())
        return _read_string(file, data, name, attribute, places)


def _mapped(file: Any) -> mmap:
    with FileIO(file.filename) as raw:
        return mmap(raw.fileno(), 0, access=ACCESS_READ)


def _read_string(
    file: Any, data: mmap, name: str, item: Any, places: Sequence[int | None]
) -> bytes:
    """Return a dataset or attribute that is one string.

    Args:
        file: The open file.
        data: The bytes of the file.
        name: The name of the value, for the message.
        item: The dataset or attribute.
        places: The positions of the references to strings.
    """
    import h5py

    is_string = h5py.check_string_dtype(item.dtype) and item.get_storage_size() == _REFERENCE_BYTES
    if not is_string or len(places) != 1 or places[0] is None:
        raise DataError(
            f"'{name}' in {file.filename} is not one string in h5py's default format (libver "
            "'earliest')."
        )
    length, address, index = unpack_from("<IQI", data, places[0])
    heap = file.userblock_size + address
    size = unpack_from("<Q", data, heap + 8)[0] if length else 0
    at, number = heap + 16, -1
    while at < heap + size and number != 0:  # 0 is the free space at the end
        number, stored = unpack_from("<H6xQ", data, at)
        at += 16
        if number == index and length <= stored:
            return data[at : at + length]
        at += stored + -stored % 8
    if length:
        raise DataError(f"'{name}' in {file.filename} is damaged: its text is missing.")
    return b""


def _find_attribute(data: mmap, base: int, start: int, name: bytes) -> list[int]:
    """Return the positions of an attribute in the header of an object.

    There are none if the header has a version other than 1, or refers to other headers.

    Args:
        data: The bytes of the file.
        base: The position of address 0.
        start: The position of the header.
        name: The name of the attribute.
    """
    version, size = unpack_from("<B7xI", data, start)
    chunks, places = [(start + 16, size)] if version == 1 else [], []
    for at, size in chunks:
        end = at + size
        while at + 24 <= end:
            kind, length, flags, version, *sizes = unpack_from("<HHB3xBxHHH", data, at)
            address, size = unpack_from("<QQ", data, at + 8)
            if kind == _CONTINUATION and (base + address, size) not in chunks:
                chunks.append((base + address, size))
            elif kind == _ATTRIBUTE:
                if flags & _SHARED:
                    return []
                begin = at + 16 + (version == 3)
                if version == 1:  # the parts are padded
                    sizes = [size + -size % 8 for size in sizes]
                if data[begin : begin + sizes[0]].rstrip(b"\0") == name:
                    places.append(begin + sum(sizes))
            at += 8 + length
    return places
