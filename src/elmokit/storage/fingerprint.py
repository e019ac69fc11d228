"""Fingerprints of arrays, files and texts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BYTES = 16


def fingerprint_model(
    config: Mapping[str, Any], arrays: Iterable[tuple[str, NDArray[Any]]], *texts: str
) -> str:
    """Return the fingerprint of a model.

    Args:
        config: The configuration as JSON values.
        arrays: Names and arrays, in a fixed order. Only one array is in memory at a time.
        texts: Other inputs that affect the results, such as word lists.
    """
    import numpy as np

    digest = hashlib.blake2b(json.dumps(config).encode(), digest_size=_BYTES)
    for name, array in arrays:
        digest.update(f"{name} {list(array.shape)}".encode())
        digest.update(np.ascontiguousarray(array).data)
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def fingerprint_file(path: Path) -> str:
    """Return the fingerprint of the contents of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=_BYTES)).hexdigest()


def fingerprint_texts(texts: Iterable[str]) -> str:
    """Return the fingerprint of an ordered sequence of strings."""
    joined = "\n".join(texts).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(joined, digest_size=_BYTES).hexdigest()
