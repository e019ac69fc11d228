"""Read and write safetensors files; check names, shapes, types and values.

Files are memory-mapped, so that a model of 374 MB opens in a fraction of a second.

To save space, weights can be stored as float16, or matrices as int8: the values are then q[n, k] *
scale[n], with the float32 scales of the rows of `name` in `name.scale`. Both are converted to
float32 when they are read. Large files can be split: `model.safetensors`, `model-2.safetensors`,
...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from elmokit.errors import ConfigError, WeightsError, nearest
from elmokit.model.quantize import dequantize_rows, quantize_rows
from elmokit.storage.tensors import open_tensors, save_tensors

Shape = tuple[int, ...]

#: How numbers are stored.
Storage = Literal["float32", "float16", "int8"]
STORAGES: tuple[str, ...] = get_args(Storage)

_SCALE = ".scale"
# Smaller matrices stay float32: nothing is saved, and the embeddings of characters are worth it.
_SMALLEST_INT8 = 1 << 14
_MAX_PARTS = 99

# What we write, and what others may have written: the value is the same or nearly so in float32.
_FLOATS = ("F32", "F16", "BF16", "F64")
# Enough to see what is wrong; a foreign file would name hundreds.
_PROBLEMS_SHOWN = 5


def read_shapes(path: Path) -> dict[str, Shape]:
    """Read only the header: the names and shapes of the tensors in a file."""
    with _opened(path) as files:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name, file in files.items()}
    return {name: shape for name, shape in shapes.items() if not _is_scale(name, shapes)}


def read_tensors(path: Path, expected: Mapping[str, Shape]) -> dict[str, Tensor]:
    """Read exactly the expected tensors, as float32.

    Args:
        path: The safetensors file, or the first of its parts.
        expected: The shape of each tensor that should be there.
    """
    tensors: dict[str, Tensor] = {}
    with _opened(path) as files:
        names = {name for name in files if not _is_scale(name, files)}
        problems = _names_that_differ(names, expected)
        for name in sorted(names & expected.keys()):
            problems += _misfits(files, name, expected[name])
        if problems:
            raise WeightsError(_told(path, problems))
        for name in expected:
            tensor = files[name].get_tensor(name)
            if tensor.dtype == torch.int8:
                scale = files[name + _SCALE].get_tensor(name + _SCALE)
                tensor = dequantize_rows(tensor, scale)
            tensors[name] = tensor.to(torch.float32)
    for name, tensor in tensors.items():
        if not _is_finite(tensor):
            raise WeightsError(
                f"Tensor '{name}' in {path} holds NaN or infinite values: the file is damaged or "
                "the training that made it had diverged."
            )
    return tensors


def write_tensors(
    tensors: Mapping[str, Tensor],
    path: Path,
    *,
    storage: Storage = "float32",
    part_bytes: int | None = None,
) -> None:
    """Write tensors; a disk that is full is an `OSError`, as for any other file.

    Args:
        tensors: By name.
        path: The file, or the first of its parts.
        storage: How numbers are stored; all but float32 loses some of their digits.
        part_bytes: Begin another part when one has this size, about.
    """
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        ready = _stored(name, tensor.detach().to("cpu", torch.float32), storage)
        n = sum(t.numel() * t.element_size() for t in ready.values())
        if part_bytes is not None and parts[-1] and size + n > part_bytes:
            parts.append({})
            size = 0
        parts[-1] |= ready
        size += n
    for number, part in enumerate(parts, start=1):
        save_tensors(part, part_path(path, number))


def part_path(path: Path, number: int) -> Path:
    """Return the name of a part of a file, counted from 1; the first has the name of the file."""
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def part_paths(path: Path) -> list[Path]:
    """Return the parts of a file that are there; at least the first, there or not."""
    numbers = range(2, _MAX_PARTS + 1)
    return [path, *(p for p in (part_path(path, n) for n in numbers) if p.is_file())]


def _stored(name: str, tensor: Tensor, storage: Storage) -> dict[str, Tensor]:
    if storage == "int8" and tensor.dim() == 2 and tensor.numel() >= _SMALLEST_INT8:
        q, scale = quantize_rows(tensor)
        return {name: q.contiguous(), name + _SCALE: scale.contiguous()}
    if storage == "float16":
        short = tensor.to(torch.float16)
        if not bool(torch.isfinite(short).all()):
            raise ConfigError(f"Tensor '{name}' has values beyond float16: store it as float32.")
        tensor = short
    return {name: tensor.contiguous()}


def _is_scale(name: str, names: Mapping[str, Any]) -> bool:
    return name.endswith(_SCALE) and name[: -len(_SCALE)] in names


def _misfits(files: Mapping[str, Any], name: str, expected: Shape) -> list[str]:
    """Say what is wrong with a tensor."""
    header = files[name].get_slice(name)
    shape, dtype = tuple(header.get_shape()), header.get_dtype()
    if shape != expected:
        return [f"tensor '{name}' has shape {list(shape)}, expected {list(expected)}"]
    if dtype == "I8" and len(shape) == 2:
        scale = name + _SCALE
        if scale not in files:
            return [f"tensor '{name}' holds I8 without the scales of its rows, '{scale}'"]
        header = files[scale].get_slice(scale)
        found = (header.get_dtype(), tuple(header.get_shape()))
        if found != ("F32", shape[:1]):
            return [f"tensor '{scale}' should be F32 {list(shape[:1])}, found {found}"]
    elif dtype not in _FLOATS:
        return [f"tensor '{name}' holds {dtype}, expected F32, F16 or I8 with scales"]
    return []


@contextmanager
def _opened(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the open file that holds each tensor, by the tensor's name."""
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        for part in part_paths(path):
            file = stack.enter_context(open_tensors(part, "pt", error=WeightsError))
            files |= dict.fromkeys(file.keys(), file)
        yield files


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
