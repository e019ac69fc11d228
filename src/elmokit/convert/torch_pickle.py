"""Read state dicts saved by PyTorch (`.pkl`, `.pt`, `.bin`) without executing code.

Such files are pickles, which can call any function when they are loaded. elmokit reads them with
`weights_only=True`, which accepts only tensors and plain containers. elmokit requires torch 2.6 or
newer, because `weights_only=True` is not safe in older versions (CVE-2025-32434).
"""

from __future__ import annotations

import mmap
import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.errors import WeightsError

# Functions that `weights_only=True` accepts, although they can allocate any amount of memory. State
# dicts do not need them.
_ALLOCATIONS = re.compile(rb"c(?:builtins|__builtin__)\nbytearray\n|ctorch\nTensor\n")


def read_state_dict(path: Path) -> dict[str, NDArray[Any]]:
    """Read the tensors of a file.

    Raises:
        WeightsError: The file is damaged, contains other objects, or tries to execute code.
    """
    try:
        _check_size(path)
        with warnings.catch_warnings():
            # torch warns about unsupported pickles, which are rejected below.
            warnings.simplefilter("ignore", UserWarning)
            state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise WeightsError(f"The weight file {path} does not exist.") from None
    except pickle.UnpicklingError as error:
        # torch's own message is not shown, because it suggests executing the code.
        function = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it refers to {function[1]}" if function else "it has other contents"
        raise WeightsError(
            f"{path} was rejected: expected a dictionary of tensors, but {reason}. Loading such a "
            "file can execute arbitrary code. Download it from the publisher of the model."
        ) from error
    except Exception as error:  # torch raises many types of errors for damaged files
        reason = (str(error).splitlines() or [""])[0].split(". ")[0][:100]
        raise WeightsError(
            f"{path} cannot be read as a PyTorch file ({type(error).__name__}: {reason}). It may "
            "be truncated or in another format; download it again."
        ) from error
    arrays = {}
    for name, value in state.items() if isinstance(state, Mapping) else [(None, state)]:
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise WeightsError(
                f"{path} contains a value of type {type(value).__name__}; expected a dictionary of "
                "tensors by name."
            )
        try:
            arrays[name] = value.detach().numpy()
        except (RuntimeError, TypeError) as error:  # for example, a sparse tensor
            raise WeightsError(f"Tensor '{name}' in {path} is not supported: {error}") from error
        # The shape of an expanded tensor can be much larger than the stored data.
        if arrays[name].nbytes > value.untyped_storage().nbytes():
            raise WeightsError(
                f"Tensor '{name}' in {path} is larger than its stored data. The file is damaged."
            )
    return arrays


def _check_size(path: Path) -> None:
    """Raise a `ValueError` if loading the file could need much more memory than its size."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > path.stat().st_size:  # torch does not compress
            raise ValueError(f"its uncompressed size is {size:,} bytes")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if _ALLOCATIONS.search(data):
            raise ValueError("it contains objects other than stored tensors")
