"""Read untrusted HDF5 files. All kinds of damage raise the same type of error.

Datasets are rejected if they are links, if they are stored in other files, if reading them needs a
buffer much larger than the dataset, or if they declare far more data than the file contains.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elmokit.errors import DataError, ElmoError
from elmokit.storage.regular import check_regular_files

_MAX_CHUNK_BYTES = 1 << 26
# Weights are hardly compressible. The ratio is not checked for small datasets.
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
    size, stored = int(item.nbytes), item.id.get_storage_size()
    chunk = math.prod(item.chunks or ()) * item.dtype.itemsize
    limit = _MIN_CHECKED_BYTES + _MAX_COMPRESSION_RATIO * stored
    if chunk > max(_MAX_CHUNK_BYTES, size) or size > limit:
        raise error(
            f"'{name}' in {file.filename} declares {size:,} bytes in chunks of {chunk:,}, but only "
            f"{stored:,} bytes are stored. The file is damaged or malicious."
        )
    return item
