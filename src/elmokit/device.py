"""The device to compute on."""

from __future__ import annotations

import torch

from elmokit.errors import ConfigError


def choose_device(name: str | torch.device) -> torch.device:
    """Return an available device for "auto", "cpu", "cuda", "cuda:1", ..."""
    if isinstance(name, str) and name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise ConfigError(f"{name!r} is not a device: use auto, cpu, cuda or cuda:N.") from error
    if device.type not in ("cpu", "cuda"):
        raise ConfigError(f"Device '{name}' is not supported: use auto, cpu, cuda or cuda:N.")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        there = torch.cuda.device_count()
        raise ConfigError(
            f"Device '{name}' was asked for, but this torch sees {there or 'no'} CUDA GPU"
            f"{'s' if there > 1 else ''}. Use device='cpu' or 'auto' (--device on the command "
            "line); `elmo doctor` lists the devices."
        )
    return device
