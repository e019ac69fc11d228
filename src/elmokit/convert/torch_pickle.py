"""Read state dicts saved by torch (`.pkl`, `.pt`, `.bin`) safely.

Such files are pickles, which can call any function when they are loaded. They are read with
`weights_only=True`, which accepts only tensors and plain containers; it is safe since torch 2.6
(CVE-2025-32434), which elmokit requires. Both formats of torch are supported: zip files, and the
streams of versions before 1.6.
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


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file.

    Raises:
        WeightsError: It is damaged, contains anything but tensors, or tries to run code.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about pickles that are then rejected
            state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise WeightsError(f"The weight file {path} does not exist.") from None
    except pickle.UnpicklingError as error:
        # torch's own message suggests running the code.
        function = re.search(r"GLOBAL ([\w.]+)", str(error))
        reason = f"it refers to {function[1]}" if function else "it is another kind of pickle"
        raise WeightsError(
            f"{path} was rejected: expected a dictionary of tensors, but {reason}. Loading such a "
            "file can execute arbitrary code. Download it from the publisher of the model."
        ) from error
    except Exception as error:  # torch raises nearly every type for damaged files
        reason = (str(error).splitlines() or [""])[0].split(". ")[0][:100]
        raise WeightsError(
            f"{path} cannot be read as a torch file ({type(error).__name__}: {reason}). It may be "
            "truncated or in another format; download it again."
        ) from error
    values = state.items() if isinstance(state, Mapping) else [(None, state)]
    for name, value in values:
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise WeightsError(
                f"{path} should contain a dict from names to tensors, found {type(value).__name__}."
            )
    return dict(state)
