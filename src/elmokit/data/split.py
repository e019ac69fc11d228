"""Choose the documents that are held out for evaluation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import DataError
from elmokit.progress import plural


def choose_documents(n: int, valid: int | float, seed: int) -> NDArray[np.bool_]:
    """Choose the documents with the smallest hashes of seed and position.

    The choice is the same on every machine, and a larger choice includes a smaller one.

    Args:
        n: The number of documents.
        valid: How many to choose; a float is a fraction of `n`, rounded, and at least one.
        seed: The seed of the hash.

    Returns:
        Whether each document is chosen, shape (n,).

    Raises:
        DataError: There are not enough documents.
    """
    wanted = max(1, round(n * valid)) if isinstance(valid, float) else valid
    if wanted >= n:
        raise DataError(
            f"Cannot hold out {wanted:,} of {plural(n, 'document')}: none is left for training. "
            "Documents are separated by empty lines and ends of files. For text without empty "
            "lines, hold out separate files: --valid-files FILE (in Python: valid_files=[...])."
        )
    hashes = _mix(_mix(np.array([seed % 2**64], np.uint64)) ^ np.arange(n, dtype=np.uint64))
    chosen = np.zeros(n, np.bool_)
    chosen[np.argsort(hashes, kind="stable")[:wanted]] = True
    return chosen


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of each value with splitmix64, whose products overflow on purpose."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
