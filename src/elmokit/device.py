"""The device to compute on, and copies to it."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.errors import ConfigError


def choose_device(name: str | torch.device) -> torch.device:
    """Return an available device for "auto", "cpu", "cuda", "cuda:1", ..."""
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(
            f"Invalid device {name!r}: expected auto, cpu, cuda or cuda:N."
        ) from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"Unsupported device '{name}': expected auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"Device '{name}' is not available: PyTorch detects {torch.cuda.device_count()} CUDA "
            "GPUs. Use device='cpu' or 'auto' (--device on the command line); `elmo doctor` lists "
            "the devices."
        )
    return device


def to_device(array: NDArray[np.integer], device: torch.device) -> Tensor:
    """Copy an array of integers to a device without waiting for the work queued on it."""
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if device.type != "cuda":
        return tensor.to(device)
    return tensor.pin_memory().to(device, non_blocking=True)
