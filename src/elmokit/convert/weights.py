"""Shared by the readers of all formats: check tensors and build the network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from elmokit.config import BiLMConfig
from elmokit.errors import WeightsError
from elmokit.model.bilm import BiLM
from elmokit.model.blank import blank


def check_shape(what: str, shape: Sequence[int] | None, expected: Sequence[int]) -> None:
    """Raise if a tensor has a different shape; called before its values are read."""
    if shape is None or tuple(shape) != tuple(expected):
        raise WeightsError(
            f"{what} has shape {list(shape or ())}; expected {list(expected)} according to the "
            "model's options. The files are from different models, or one is damaged."
        )


def as_float32(what: str, value: NDArray[Any]) -> NDArray[np.float32]:
    """Return the values of a tensor as float32; raise if they are not finite floats."""
    if value.dtype.kind != "f":
        raise WeightsError(f"{what} has type {value.dtype}; expected floats.")
    with np.errstate(over="ignore"):  # a float64 beyond float32
        floats: NDArray[np.float32] = value.astype(np.float32, copy=False)
    if not np.isfinite(floats).all():
        raise WeightsError(
            f"{what} contains NaN or infinite values: the file is damaged, or its training "
            "diverged."
        )
    return floats


def make_bilm(config: BiLMConfig, state: Mapping[str, Tensor]) -> BiLM:
    """Return a biLM with these parameters, in evaluation mode."""
    with blank():  # no memory and no time for values that are replaced
        bilm = BiLM(config)
    bilm.load_state_dict(state, assign=True)
    return bilm.eval()
