"""Read state dicts saved by torch (`.pkl`, `.pt`, `.bin`) safely.

Such files are pickles, which can call any function when they are loaded. They are read with
`weights_only=True`, which accepts only tensors and plain containers. Both formats of torch are
supported: zip files, and the streams of versions before 1.6.
"""

from __future__ import annotations

import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from elmokit.errors import WeightsError

# `weights_only` was not safe before this version (CVE-2025-32434).
_SAFE_TORCH = (2, 6)


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file.

    Raises:
        WeightsError: It is damaged, contains anything but tensors, or tries to run code.
    """
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < _SAFE_TORCH:
        raise WeightsError(
            f"{path} is a pickle, and torch {torch.__version__} cannot read it without the danger "
            "of running code. Upgrade with: pip install 'torch>=2.6'"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about pickles that are then rejected
            found = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise WeightsError(f"There is no weight file {path}.") from None
    except pickle.UnpicklingError as error:
        raise WeightsError(_refused(path, str(error))) from error
    except Exception as error:  # whatever a damaged file makes torch's reader say
        raise WeightsError(
            f"{path} cannot be read as a file of torch ({_first_line(error)}). It may be truncated "
            "or of another kind: fetch it again."
        ) from error
    if not isinstance(found, Mapping):
        raise WeightsError(f"{path} should hold tensors by name, found {type(found).__name__}.")
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise WeightsError(
                f"{path} should hold tensors by name, found {type(value).__name__} for {name!r}."
            )
    return dict(found)


def _refused(path: Path, reason: str) -> str:
    """Say why a file was refused; torch's own words advise to run it."""
    asked = re.search(r"GLOBAL ([\w.]+)", reason)
    what = f"asks for {asked[1]}" if asked else "is a pickle of another kind"
    return (
        f"{path} is not read: it should hold tensors by name and nothing else, and it {what}. Such "
        "a file can run any program when it is opened as a pickle. Get it from where the model was "
        "published."
    )


def _first_line(error: Exception) -> str:
    first = (str(error).splitlines() or [""])[0].split(". ")[0]
    return f"{type(error).__name__}: {first[:100]}"
