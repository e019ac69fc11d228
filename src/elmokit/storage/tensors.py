"""safetensors files: opened and written with helpful errors."""

from __future__ import annotations

import errno
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elmokit.errors import DataError, ElmoError
from elmokit.storage.regular import check_regular_files

if TYPE_CHECKING:
    from torch import Tensor


def open_tensors(
    path: Path,
    framework: Literal["np", "pt"] = "np",
    *,
    error: type[ElmoError] = DataError,
    hint: str = "",
) -> Any:
    """Open a safetensors file and check its header; arrays are memory-mapped on access.

    Args:
        path: The file.
        framework: The type of arrays: "np" (numpy) or "pt" (torch).
        error: The error to raise if the file is missing or damaged.
        hint: Advice for the error message, a sentence. Default: depends on the kind of the file.

    Returns:
        A `safetensors.safe_open`.
    """
    from safetensors import SafetensorError, safe_open

    check_regular_files(path, error)
    try:
        return safe_open(path, framework=framework)
    except FileNotFoundError:
        raise error(f"{path} does not exist. {hint}".rstrip()) from None
    except MemoryError as reason:
        raise error(
            f"{path} cannot be mapped into memory: it has {path.stat().st_size:,} bytes. It may be "
            "damaged; otherwise, increase the limit of the address space (ulimit -v)."
        ) from reason
    except (SafetensorError, OSError, RuntimeError, ValueError) as reason:
        raise error(
            f"{path} cannot be read as safetensors ({reason}). {hint or _guess_kind(path)}"
        ) from reason


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write torch tensors to a safetensors file.

    The caller writes into a temporary file or directory, see `elmokit.storage.atomic`.

    Raises:
        OSError: The file cannot be written, for example because the disk is full.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(dict(tensors), path)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        raise OSError(int(number[1]) if number else errno.EIO, str(error)) from error
    path.chmod(mode)  # safetensors creates files that only their owner can read


def _guess_kind(path: Path) -> str:
    try:
        with path.open("rb") as file:
            start = file.read(32)
    except OSError:
        return "Check the path and the permissions."
    if start.startswith(b"version https://git-lfs"):
        return "It is a Git LFS pointer, not the file itself: run 'git lfs pull' in its directory."
    if start.startswith(b"\x89HDF"):
        return "It is an HDF5 file: load it together with its options.json."
    if start.startswith((b"\x80", b"PK")) and start[8:9] != b"{":  # where the header begins
        return "It may be a torch pickle, which is not supported because it can execute code."
    return "It may be truncated or in another format; download or save it again."
