"""Which processes share the work on a corpus, each with its own model: what the user asked for."""

from __future__ import annotations

from dataclasses import dataclass

from elmokit.embed.loading import is_onnx, need_torch
from elmokit.embed.onnx_model import check_device
from elmokit.errors import ConfigError


@dataclass(frozen=True)
class Workers:
    """Processes that each load a model, as `elmokit.load` does.

    Attributes:
        devices: The device of each, "cpu" or "cuda:N"; as many as there are workers.
        model: The model.
        weights: Its HDF5 file, if it has one elsewhere.
        precision: "exact" or "fast".
    """

    devices: tuple[str, ...]
    model: str | None = None
    weights: str | None = None
    precision: str = "exact"

    def __post_init__(self) -> None:
        if not self.devices:
            raise ConfigError("Work needs at least one worker, found no device for any.")
        if is_onnx(self.model):
            for name in self.devices:
                check_device(name)
            return
        need_torch(self.model)
        from elmokit.device import choose_device

        kinds = {choose_device(name).type for name in self.devices}
        if len(kinds) > 1:
            raise ConfigError(
                f"The devices {', '.join(self.devices)} are of different kinds, which round "
                "differently: vectors would depend on who computed them. Name GPUs only, or CPUs."
            )


def choose_devices(
    n_workers: int | None, devices: str | None, device: str, model: str | None = None
) -> tuple[str, ...]:
    """Read what the user wrote: `--workers N`, `--devices 0,1` or `--devices cpu,cpu`.

    Args:
        n_workers: A number of workers, on `device`; "auto" deals them out to all GPUs there are.
        devices: One worker for each of these: numbers of GPUs, or "cpu".
        device: As for `elmokit.load`.
        model: As for `elmokit.load`; one in ONNX runs on the CPU.
    """
    if devices is not None:
        if n_workers is not None or device != "auto":
            raise ConfigError(
                "--devices names the device of each worker: leave out --workers and --device."
            )
        names = [name.strip() for name in devices.split(",")]
        return tuple(f"cuda:{name}" if name.isdecimal() else name for name in names)
    n = n_workers or 1
    if is_onnx(model):
        return ("cpu" if device == "auto" else device,) * n
    need_torch(model)
    import torch

    from elmokit.device import choose_device

    n_gpus = torch.cuda.device_count() if device == "auto" else 0
    if n_gpus:
        return tuple(f"cuda:{i % n_gpus}" for i in range(n))
    return (str(choose_device(device)),) * n
