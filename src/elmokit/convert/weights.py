"""Convert tensors in other formats to the parameters of a biLM, and validate them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from elmokit.errors import WeightsError, join_names
from elmokit.model.skip_init import skip_init

Array = NDArray[np.float32]
M = TypeVar("M", bound=nn.Module)


@dataclass(frozen=True)
class Entry:
    """A tensor in a file, and the parameters that it contains.

    Attributes:
        name: The name of the tensor.
        shape: The shape of the tensor.
        parameters: The names of the parameters.
        unpack: Converts the tensor to the parameters.
        pack: The inverse of `unpack`, for formats that can be written.
    """

    name: str
    shape: tuple[int, ...]
    parameters: tuple[str, ...]
    unpack: Callable[[Array], Iterable[Array]]
    pack: Callable[..., Array] = lambda a: a


def unchanged(name: str, shape: tuple[int, ...], parameter: str) -> Entry:
    """Return the entry of a tensor that is equal to a parameter."""
    return Entry(name, shape, (parameter,), lambda a: (a,))


def read_parameters(
    entries: Iterable[Entry], find: Callable[[str], Any], names: Iterable[str], source: Path
) -> dict[str, Tensor]:
    """Read the parameters of a model from a file.

    Args:
        entries: The tensors to read.
        find: Returns the tensor with a given name, or None. A tensor has a `shape` and can be read
            with `numpy.asarray`.
        names: The names of all tensors in the file, for error messages.
        source: The file, for error messages.

    Raises:
        WeightsError: A tensor is missing, has a different shape, or contains invalid values.
    """
    parameters = {}
    for entry in entries:
        tensor = find(entry.name)
        if tensor is None:
            raise WeightsError(
                f"{source} has no tensor '{entry.name}' {list(entry.shape)}, which the "
                f"configuration of the model requires. It contains {join_names(names)}."
            )
        description = f"Tensor '{entry.name}' in {source}"
        # Check the shape before reading the values, because a file can claim any size.
        if tensor.shape is None or tuple(tensor.shape) != entry.shape:
            raise WeightsError(
                f"{description} has shape {list(tensor.shape or ())}; expected {list(entry.shape)} "
                "according to the configuration of the model. The files are from different models, "
                "or one of them is damaged."
            )
        values = entry.unpack(_as_float32(description, np.asarray(tensor)))
        for name, value in zip(entry.parameters, values, strict=True):
            parameters[name] = torch.from_numpy(np.ascontiguousarray(value))
    return parameters


def _as_float32(description: str, value: NDArray[Any]) -> Array:
    if value.dtype.kind != "f":
        raise WeightsError(f"{description} has type {value.dtype}; expected a floating-point type.")
    with np.errstate(over="ignore"):  # float64 values outside the range of float32
        floats: Array = value.astype(np.float32, copy=False)
    if not np.isfinite(floats).all():
        raise WeightsError(
            f"{description} contains NaN or infinite values. The file is damaged, or the training "
            "of the model diverged."
        )
    return floats


def build_module(make: Callable[[], M], parameters: Mapping[str, Tensor]) -> M:
    """Create a module with the given parameters, in evaluation mode."""
    with skip_init():  # the initial values are replaced
        module = make()
    module.load_state_dict(parameters, assign=True)
    return module.eval()
