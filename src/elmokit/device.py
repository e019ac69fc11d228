"""Select a device and copy arrays to it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.errors import ConfigError
from elmokit.progress import plural


def choose_device(name: str | torch.device) -> torch.device:
    """Return the device for a name such as "auto", "cpu", "cuda" or "cuda:1".

    Raises:
        ConfigError: The name is invalid, or the device is not available.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        is_valid = device.type in ("cpu", "cuda")
    except (RuntimeError, TypeError):
        is_valid = False
    if not is_valid:
        raise ConfigError(f"Invalid device '{name}': expected auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        gpus = plural(torch.cuda.device_count(), "CUDA GPU")
        raise ConfigError(
            f"Device '{name}' is not available: PyTorch detected {gpus}. Use device='cpu' or "
            "'auto' (--device on the command line); `elmo doctor` lists the devices."
        )
    return device


def to_device(array: NDArray[np.integer], device: torch.device) -> Tensor:
    """Copy an integer array to a device, without waiting for earlier work on a GPU."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
