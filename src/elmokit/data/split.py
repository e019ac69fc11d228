"""Choose the documents that are held out for evaluation."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import DataError
from elmokit.progress import plural


def choose_documents(n: int, valid: int | float, seed: int) -> NDArray[np.bool_]:
    """Choose documents by a hash of the seed and of their places.

    Nothing else has a say, so that the choice is the same on every machine; and since the documents
    with the smallest hashes are chosen, more of them include those that fewer would be.

    Args:
        n: The number of documents.
        valid: How many to choose; a float is a fraction of `n`, rounded, and at least one.
        seed: Another one chooses others.

    Returns:
        Whether each document is chosen, shape (n,).

    Raises:
        DataError: There are not enough documents.
    """
    wanted = max(1, round(n * valid)) if isinstance(valid, float) else valid
    if wanted >= n:
        raise DataError(
            f"{wanted:,} of {plural(n, 'document')} cannot be held out: nothing is left to train "
            "on. Documents are separated by empty lines and ends of files; text without them can "
            "be held out as files of its own: --valid-files FILE (in Python: valid_files=[...])."
        )
    hashes = _mix(_mix(np.array([seed % 2**64], np.uint64)) ^ np.arange(n, dtype=np.uint64))
    chosen = np.zeros(n, np.bool_)
    chosen[np.argsort(hashes, kind="stable")[:wanted]] = True
    return chosen


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of each value: the generator splitmix64, whose products wrap on purpose."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
