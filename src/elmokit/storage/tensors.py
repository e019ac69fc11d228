"""Open and write safetensors files, with helpful error messages."""

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
    """Open a safetensors file and validate its header. Arrays are memory-mapped on access.

    Args:
        path: The file.
        framework: The type of arrays to return: "np" (NumPy) or "pt" (PyTorch).
        error: The type of the error to raise if the file is missing or damaged.
        hint: A sentence of advice for the error message. Default: advice that depends on the
            contents of the file.

    Returns:
        A `safetensors.safe_open`.
    """
    from safetensors import SafetensorError, safe_open

    check_regular_files(path, error)
    try:
        return safe_open(path, framework=framework)
    except FileNotFoundError:
        raise error(f"{path} does not exist. {hint}".rstrip()) from None
    except (SafetensorError, OSError, RuntimeError, ValueError, MemoryError) as reason:
        raise error(
            f"{path} cannot be read as safetensors ({reason}). {hint or _guess_cause(path)}"
        ) from reason


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write tensors to a safetensors file.

    This function is not atomic. Use it with `replace_file` or `replace_directory`.

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
        match = re.search(r"os error (\d+)", str(error))
        raise OSError(int(match[1]) if match else errno.EIO, str(error)) from error
    path.chmod(mode)  # safetensors creates files that only the owner can read


def _guess_cause(path: Path) -> str:
    """Return why a file may not be a safetensors file, and how to fix it."""
    try:
        with path.open("rb") as file:
            header = file.read(32)
    except OSError:
        return "Check the path and the permissions."
    if header.startswith(b"version https://git-lfs"):
        return "It is a Git LFS pointer, not the file itself: run 'git lfs pull' in its directory."
    if header.startswith(b"\x89HDF"):
        return "It is an HDF5 file: load it together with its options.json."
    if header.startswith((b"\x80", b"PK")) and header[8:9] != b"{":  # "{" begins a valid header
        return "It may be a torch pickle, which is not supported because it can execute code."
    return "It may be truncated or in another format; download or save it again."
