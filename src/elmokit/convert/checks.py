"""Checks for the weights of all formats: expected shapes, finite floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import WeightsError


def check_shape(what: str, found: Sequence[int] | None, expected: Sequence[int]) -> None:
    """Raise if a tensor has another shape; to be called before it is read."""
    if found is None or tuple(found) != tuple(expected):
        raise WeightsError(
            f"{what} has shape {list(found or ())}; the options call for {list(expected)}. The two "
            "files are not of the same model."
        )


def as_float32(what: str, value: NDArray[Any]) -> NDArray[np.float32]:
    """Return the values of a tensor as float32; raise if they are not finite floats."""
    if value.dtype.kind != "f":
        raise WeightsError(f"{what} holds {value.dtype}, not floats.")
    with np.errstate(over="ignore"):  # a float64 beyond float32
        floats: NDArray[np.float32] = value.astype(np.float32, copy=False)
    if not np.isfinite(floats).all():
        raise WeightsError(
            f"{what} holds NaN or infinite values: the file is damaged or the training that made "
            "it had diverged."
        )
    return floats
