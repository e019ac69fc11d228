"""State dicts that torch saved (`.pkl`, `.pt`, `.bin`), read without running what they say.

Such a file is a pickle, a program that builds objects and may call any function on the way. torch's
own careful reader (`weights_only`) runs none of it: it knows tensors and plain containers, and
refuses everything else. Both of torch's formats are read, the zip of today and the stream of files
from before version 1.6.
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

# Before this version the careful reader could be got round (CVE-2025-32434).
_SAFE_TORCH = (2, 6)


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file.

    Raises:
        WeightsError: It is damaged, holds something else than tensors, or tries to run code.
    """
    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if version < _SAFE_TORCH:
        raise WeightsError(
            f"{path} is a pickle, and torch {torch.__version__} cannot read it without the danger "
            "of running code. Upgrade with: pip install 'torch>=2.6'"
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of pickles that are then refused
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


def _refused(path: Path, told: str) -> str:
    """Say why a file was refused; torch's own words advise to run it."""
    asked = re.search(r"GLOBAL ([\w.]+)", told)
    what = f"asks for {asked[1]}" if asked else "is a pickle of another kind"
    return (
        f"{path} is not read: it should hold tensors by name and nothing else, and it {what}. Such "
        "a file can run any program when it is opened as a pickle. Get it from where the model was "
        "published."
    )


def _first_line(error: Exception) -> str:
    told = (str(error).splitlines() or [""])[0].split(". ")[0]
    return f"{type(error).__name__}: {told[:100]}"
