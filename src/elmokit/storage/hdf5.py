"""Read untrusted HDF5 files: any damage raises the same type of error, and no other file is opened.

Links can point to other files; a dataset can be stored in other files, need a buffer much larger
than itself, or declare gigabytes of which nothing is stored. Such datasets raise an error.
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
# Weights hardly compress. Small datasets may be of any kind.
_MAX_RATIO = 100
_FREE_BYTES = 1 << 24


def open_hdf5(path: Path, *, error: type[ElmoError] = DataError) -> Any:
    """Open a file for reading, as an `h5py.File`.

    Args:
        path: The file.
        error: The error to raise if it is missing or damaged.
    """
    import h5py

    check_regular_files(path, error)
    with hdf5_errors(path, error=error):
        return h5py.File(path, "r")


@contextmanager
def hdf5_errors(path: Path, *, error: type[ElmoError] = DataError) -> Iterator[None]:
    """Convert all exceptions that h5py raises for a damaged file to one error."""
    try:
        yield
    except ElmoError:
        raise
    except FileNotFoundError:
        raise error(f"{path} does not exist.") from None
    except Exception as reason:  # h5py raises nearly every type
        raise error(
            f"{path} cannot be read as HDF5 ({reason}). It may be truncated, damaged or in another "
            "format; download or write it again."
        ) from reason


def find_dataset(file: Any, name: str, *, error: type[ElmoError] = DataError) -> Any:
    """Return a dataset whose values are stored in the file itself, or None if there is none.

    Args:
        file: The open file.
        name: Its path in the file.
        error: The error to raise for links, and for sizes far larger than the stored data.
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
    if chunk > max(_MAX_CHUNK_BYTES, size) or size > _FREE_BYTES + _MAX_RATIO * stored:
        raise error(
            f"'{name}' in {file.filename} declares {size:,} bytes in chunks of {chunk:,}, but only "
            f"{stored:,} bytes are stored. The file is damaged or malicious."
        )
    return item
