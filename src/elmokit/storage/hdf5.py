"""Read untrusted HDF5 files. All kinds of damage raise the same type of error.

Datasets are rejected if they are links, if they are stored in other files, if reading them needs a
buffer much larger than the dataset, or if they declare far more data than the file contains.

HDF5 allocates the declared length of a string, up to 4 GB, before it finds that the file does not
contain that string, and has no function that returns the length. It is therefore read from the
bytes of the file; see "Data Object Headers" in the "HDF5 File Format Specification".
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from struct import unpack_from
from typing import Any

from elmokit.errors import DataError, ElmoError
from elmokit.storage.regular import check_regular_files

_MAX_CHUNK_BYTES = 1 << 26
# Weights are hardly compressible. The ratio is not checked for small datasets.
_MAX_COMPRESSION_RATIO = 100
_MIN_CHECKED_BYTES = 1 << 24
_MAX_STRING_BYTES = 1 << 29

# Types of messages in object headers, and a flag.
_ATTRIBUTE, _CONTINUATION = 12, 16
_SHARED = 2


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


def find_dataset(file: Any, name: str, *, error: type[ElmoError] = DataError) -> Any:
    """Return a dataset after validating how it is stored, or None if it does not exist.

    Args:
        file: The open file.
        name: The path of the dataset in the file.
        error: The type of the error to raise for links, for data in other files, and for sizes far
            larger than the stored data.
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
    if item.dtype.hasobject:
        _check_string(file, name, item, {item.id.get_offset()} - {None}, error)
    return item


def read_attribute(file: Any, item: Any, name: str) -> Any:
    """Return an attribute, which must be a number or one string, or None if it does not exist.

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
    if attribute.dtype.hasobject:
        _check_string(file, name, attribute, _find_attribute(file, item, name), DataError)
    return attributes[name]


def _check_string(
    file: Any, name: str, item: Any, places: set[int], error: type[ElmoError]
) -> None:
    """Raise an error if a value of variable length is anything but one string of limited length.

    Args:
        file: The open file.
        name: The name of the value, for the message.
        item: The dataset or attribute.
        places: The positions in the file where the length may be stored.
        error: The type of the error.
    """
    import h5py

    if not places or h5py.check_string_dtype(item.dtype) is None or math.prod(item.shape) != 1:
        raise error(
            f"'{name}' in {file.filename} has a variable length: expected a number, or one string "
            "in h5py's default format (libver 'earliest')."
        )
    lengths = [int.from_bytes(_read_bytes(file, place, 4), "little") for place in places]
    limit = min(_MAX_STRING_BYTES, file.id.get_filesize())
    if max(lengths) > limit:
        raise error(
            f"'{name}' in {file.filename} declares {max(lengths):,} bytes; expected at most "
            f"{limit:,}. The file is damaged or malicious."
        )


def _find_attribute(file: Any, item: Any, name: str) -> set[int]:
    """Return the positions in the file where an attribute may be stored.

    There are none if the object header has a version other than 1, or refers to other headers.
    """
    import h5py

    base = file.userblock_size
    start, places = base + h5py.h5o.get_info(item.id).addr, set()
    version, size = unpack_from("<B7xI", _read_bytes(file, start, 12))
    chunks = [(start + 16, size)] if version == 1 else []
    for start, size in chunks:
        data, at = _read_bytes(file, start, size), 0
        while at + 24 <= len(data):
            kind, length, flags, version, *sizes = unpack_from("<HHB3xBxHHH", data, at)
            address, size = unpack_from("<QQ", data, at + 8)
            if kind == _CONTINUATION and (base + address, size) not in chunks:
                chunks.append((base + address, size))
            elif kind == _ATTRIBUTE:
                if flags & _SHARED:
                    return set()
                begin = at + 16 + (version == 3)
                if version == 1:  # the parts are padded
                    sizes = [size + -size % 8 for size in sizes]
                if data[begin : begin + sizes[0]].rstrip(b"\0") == name.encode():
                    places.add(start + begin + sum(sizes))
            at += 8 + length
    return places


def _read_bytes(file: Any, place: int, size: int) -> bytes:
    with FileIO(file.filename) as raw:
        raw.seek(place)
        return raw.read(size)
