"""Read and write safetensors files, and check names, shapes, types and values.

Files are memory-mapped, so a model of 374 MB loads in a fraction of a second.

To save space, all weights can be stored as float16, or matrices as int8. The values of an int8
matrix `NAME` are q[n, k] * scale[n], where the tensor `NAME.scale` contains the float32 scale of
each row. Weights are converted to float32 when they are read. Large files can be split:
`model.safetensors`, `model-2.safetensors`, ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from elmokit.errors import ConfigError, WeightsError
from elmokit.model.quantize import dequantize_rows, quantize_rows
from elmokit.storage.tensors import open_tensors, save_tensors

Shape = tuple[int, ...]

#: The data type of stored weights.
Storage = Literal["float32", "float16", "int8"]
STORAGES: tuple[str, ...] = get_args(Storage)

_SCALE = ".scale"
# Smaller matrices are stored as float32, because int8 would save little space and make character
# embeddings less accurate.
_MIN_INT8_MATRIX_SIZE = 1 << 14

# Supported data types, which are converted to float32.
_FLOATS = ("F32", "F16", "BF16", "F64")
# Maximum number of problems in an error message. A file from a different model can have hundreds.
_MAX_PROBLEMS = 5


def read_shapes(path: Path) -> dict[str, Shape]:
    """Read the names and shapes of the tensors in a file, without their values."""
    with _open_parts(path) as files:
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name, file in files.items()}
    return {name: shape for name, shape in shapes.items() if not _is_scale(name, shapes)}


def read_tensors(path: Path, expected: Mapping[str, Shape]) -> dict[str, Tensor]:
    """Read all tensors of a file as float32. The file must contain exactly the expected tensors.

    Args:
        path: The safetensors file, or the first of its parts.
        expected: The names and shapes of the expected tensors.
    """
    tensors: dict[str, Tensor] = {}
    with _open_parts(path) as files:
        unexpected = (n for n in files if n not in expected and not _is_scale(n, files))
        names = [*expected, *unexpected]
        problems = list(filter(None, (_find_problem(name, files, expected) for name in names)))
        if problems:
            raise WeightsError(
                f"{path} does not match its config.json: {'; '.join(problems[:_MAX_PROBLEMS])}. "
                "The files are from different models, or one of them was changed."
            )
        try:
            for name in expected:
                tensor = files[name].get_tensor(name)
                if tensor.dtype == torch.int8:
                    scale = files[name + _SCALE].get_tensor(name + _SCALE)
                    tensor = dequantize_rows(tensor, scale)
                tensors[name] = tensor.to(torch.float32)
        except (RuntimeError, MemoryError) as error:
            raise WeightsError(f"{path} cannot be loaded: not enough memory. {error}") from error
    for name, tensor in tensors.items():
        # Computing a sum is four times as fast as checking every value. A finite sum means that all
        # values are finite. Otherwise, check every value, because the sum may have overflowed.
        if not torch.isfinite(tensor.sum()) and not torch.isfinite(tensor).all():
            raise WeightsError(
                f"Tensor '{name}' in {path} contains NaN or infinite values: the file is damaged, "
                "or the training of the model diverged."
            )
    return tensors


def write_tensors(
    tensors: Mapping[str, Tensor],
    path: Path,
    *,
    storage: Storage = "float32",
    part_bytes: int | None = None,
) -> None:
    """Write tensors to one or several files.

    Args:
        tensors: The tensors by name.
        path: The file, or the first of its parts.
        storage: The data type of the stored weights. All types except float32 lose precision.
        part_bytes: Approximate maximum size of a part.

    Raises:
        OSError: The file cannot be written, for example because the disk is full.
    """
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        stored = _convert(name, tensor.detach().to("cpu", torch.float32), storage)
        n_bytes = sum(t.numel() * t.element_size() for t in stored.values())
        if part_bytes is not None and parts[-1] and size + n_bytes > part_bytes:
            parts.append({})
            size = 0
        parts[-1] |= stored
        size += n_bytes
    for number, part in enumerate(parts, start=1):
        save_tensors(part, part_path(path, number))


def part_path(path: Path, number: int) -> Path:
    """Return the path of part `number` of a file; part 1 is the file itself."""
    return path if number == 1 else path.with_name(f"{path.stem}-{number}{path.suffix}")


def _convert(name: str, tensor: Tensor, storage: Storage) -> dict[str, Tensor]:
    if storage == "int8" and tensor.dim() == 2 and tensor.numel() >= _MIN_INT8_MATRIX_SIZE:
        quantized, scale = quantize_rows(tensor)
        return {name: quantized.contiguous(), name + _SCALE: scale.contiguous()}
    if storage == "float16":
        half = tensor.to(torch.float16)
        if not bool(torch.isfinite(half).all()):
            raise ConfigError(f"Tensor '{name}' exceeds the range of float16. Store it as float32.")
        tensor = half
    return {name: tensor.contiguous()}


def _is_scale(name: str, names: Mapping[str, Any]) -> bool:
    return name.endswith(_SCALE) and name[: -len(_SCALE)] in names


def _find_problem(name: str, files: Mapping[str, Any], expected: Mapping[str, Shape]) -> str:
    """Return a description of the problem with a tensor, or an empty string if it is valid."""
    if name not in expected:
        return f"unexpected tensor '{name}'"
    if name not in files:
        return f"tensor '{name}' {list(expected[name])} is missing"
    header = files[name].get_slice(name)
    shape, dtype = tuple(header.get_shape()), header.get_dtype()
    if shape != expected[name]:
        return f"tensor '{name}' has shape {list(shape)}, expected {list(expected[name])}"
    if dtype == "I8" and len(shape) == 2:
        scale = name + _SCALE
        if scale not in files:
            return f"tensor '{name}' has type I8, but the scales '{scale}' are missing"
        header = files[scale].get_slice(scale)
        if (header.get_dtype(), tuple(header.get_shape())) != ("F32", shape[:1]):
            return f"tensor '{scale}' is not F32 {list(shape[:1])}"
    elif dtype not in _FLOATS:
        return f"tensor '{name}' has type {dtype}, expected F32, F16 or I8 with scales"
    return ""


@contextmanager
def _open_parts(path: Path) -> Iterator[dict[str, Any]]:
    """Open all parts of a file, and yield a dictionary that maps tensor names to open parts."""
    with ExitStack() as stack:
        files: dict[str, Any] = {}
        for part in (path, *path.parent.glob(f"{path.stem}-[0-9]*{path.suffix}")):
            file = stack.enter_context(open_tensors(part, "pt", error=WeightsError))
            files |= dict.fromkeys(file.keys(), file)
        yield files
