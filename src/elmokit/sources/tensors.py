"""Tensors in a safetensors file: checked by name, shape, type and value, and not copied.

The file is mapped into memory, so that a model of 374 MB opens in a fraction of a second; a change
to a tensor stays in this process.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmokit.errors import WeightsError, nearest

Shape = tuple[int, ...]

# What we write, and what others may have written: the value is the same or nearly so in float32.
_FLOATS = ("F32", "F16", "BF16", "F64")
# Enough to see what is wrong; a foreign file would name hundreds.
_PROBLEMS_SHOWN = 5


def read_shapes(path: Path) -> dict[str, Shape]:
    """Read only the header: the names and shapes of the tensors in a file."""
    with _opened(path) as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def read_tensors(path: Path, expected: Mapping[str, Shape]) -> dict[str, Tensor]:
    """Read exactly the expected tensors, as float32.

    Args:
        path: The safetensors file.
        expected: The shape of each tensor that should be there.
    """
    tensors: dict[str, Tensor] = {}
    with _opened(path) as file:
        names = set(file.keys())
        problems = _names_that_differ(names, expected)
        for name in sorted(names & expected.keys()):
            header = file.get_slice(name)
            shape, dtype = tuple(header.get_shape()), header.get_dtype()
            if shape != expected[name]:
                problems.append(
                    f"tensor '{name}' has shape {list(shape)}, expected {list(expected[name])}"
                )
            elif dtype not in _FLOATS:
                problems.append(f"tensor '{name}' holds {dtype}, expected F32")
        if problems:
            raise WeightsError(_told(path, problems))
        for name in expected:
            tensors[name] = file.get_tensor(name).to(torch.float32)
    for name, tensor in tensors.items():
        if not _is_finite(tensor):
            raise WeightsError(
                f"Tensor '{name}' in {path} holds NaN or infinite values: the file is damaged or "
                "the training that made it had diverged."
            )
    return tensors


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors as float32; a disk that is full is an `OSError`, as for any other file."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    ready = {
        name: tensor.detach().to("cpu", torch.float32).contiguous()
        for name, tensor in tensors.items()
    }
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(ready, path)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else errno.EIO, str(error)) from error
    path.chmod(mode)  # safetensors makes files that only their owner can read


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except FileNotFoundError:
        raise WeightsError(f"There is no weight file {path}.") from None
    except (SafetensorError, OSError, RuntimeError, ValueError) as error:
        raise WeightsError(
            f"{path} cannot be read as safetensors ({error}). {_what_it_is(path)}"
        ) from error


def _what_it_is(path: Path) -> str:
    try:
        with path.open("rb") as file:
            start = file.read(32)
    except OSError:
        return "Check the path and the permissions."
    if start.startswith(b"version https://git-lfs"):
        return "It is a Git LFS pointer and not the file itself: run 'git lfs pull' there."
    if start.startswith(b"\x89HDF"):
        return "It is an HDF5 file: give it together with its options.json."
    if start.startswith((b"\x80", b"PK")):
        return "It looks like a pickle of torch, which is not read here because it can run code."
    return "It may be truncated or of another kind; fetch or save it again."


def _names_that_differ(found: set[str], expected: Mapping[str, Shape]) -> list[str]:
    problems = [
        f"tensor '{name}' {list(shape)} is missing"
        for name, shape in expected.items()
        if name not in found
    ]
    return problems + [
        f"tensor '{name}' is not part of such a model.{nearest(name, expected)}".rstrip(".")
        for name in sorted(found - expected.keys())
    ]


def _told(path: Path, problems: list[str]) -> str:
    shown = "; ".join(problems[:_PROBLEMS_SHOWN])
    more = len(problems) - _PROBLEMS_SHOWN
    return (
        f"{path} does not fit its config.json: {shown}"
        + (f"; and {more} more" if more > 0 else "")
        + ". The two files are not of the same model, or one of them was changed."
    )


def _is_finite(tensor: Tensor) -> bool:
    # A sum is four times faster than a look at every value, and NaN and infinity survive it. Only
    # if huge finite values have run over is the slow look needed.
    return bool(torch.isfinite(tensor.sum())) or bool(torch.isfinite(tensor).all())
