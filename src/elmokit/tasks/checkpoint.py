"""Checkpoints of task training: everything that a run needs to resume bit-identically.

    run/checkpoints/step-00000500/
      weights.safetensors      the task model (without the frozen biLM)
      optimizer.safetensors    the optimizer state, by parameter name
      best.safetensors         the weights of the best epoch so far
      run.json                 the position and the settings of the run

The random state is not stored: every step is seeded by the seed and the step. Checkpoints are
written atomically, and older ones are removed only afterwards.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.errors import WeightsError
from elmokit.sources.tensors import Shape, read_shapes, read_tensors, write_tensors
from elmokit.storage.atomic import replace_directory, restore_directories
from elmokit.storage.manifest import read_json, write_json

FOLDER = "checkpoints"
WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
BEST = "best.safetensors"
RUN = "run.json"

Weights = dict[str, Tensor]


@dataclass
class Position:
    """The progress of a run.

    Attributes:
        rate: The learning rate.
        step: Steps done.
        epoch: Epochs done.
        batch: Batches done in the current epoch.
        loss: The sum of their losses.
        best: The best dev score so far.
        best_epoch: Its epoch, counted from 1.
        since_best: Epochs since then.
        since_halved: Epochs since then or since the rate was halved.
        seconds: Time spent so far.
    """

    rate: float
    step: int = 0
    epoch: int = 0
    batch: int = 0
    loss: float = 0.0
    best: float | None = None
    best_epoch: int = 0
    since_best: int = 0
    since_halved: int = 0
    seconds: float = 0.0


def save(
    run: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    position: Position,
    best: Weights | None,
    identity: Mapping[str, Any],
) -> None:
    """Write a checkpoint, then remove the others."""
    path = run / FOLDER / f"step-{position.step:08d}-{position.epoch:04d}"
    with replace_directory(path) as folder:
        write_tensors(weights_of(model), folder / WEIGHTS)
        write_tensors(_optimizer_state(model, optimizer), folder / OPTIMIZER)
        if best is not None:
            write_tensors(best, folder / BEST)
        values = {"position": dataclasses.asdict(position), **identity}
        write_json(folder / RUN, values)
    for other in (run / FOLDER).glob("step-*"):
        if other != path:
            shutil.rmtree(other, ignore_errors=True)


def newest(run: Path) -> Path | None:
    """Return the newest checkpoint of a run."""
    restore_directories(run / FOLDER)
    return max((run / FOLDER).glob("step-*"), default=None)


def read_run(path: Path) -> dict[str, Any]:
    """Return the position and the settings of a run, without loading weights."""
    hint = f"The checkpoint is damaged. Remove the directory {path.parent} to start over."
    values = read_json(path / RUN, error=WeightsError, hint=hint)
    try:
        Position(**values["position"])
    except (KeyError, TypeError) as error:
        raise WeightsError(f"{path / RUN} has no valid position ({error}). {hint}") from error
    return values


def load(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[Position, Weights | None]:
    """Load a checkpoint into a model and its optimizer.

    Returns:
        The position, and the weights of the best epoch so far.
    """
    position = Position(**read_run(path)["position"])
    model.load_state_dict(read_weights(path / WEIGHTS, model))
    state = read_tensors(path / OPTIMIZER, read_shapes(path / OPTIMIZER))
    for name, parameter in model.named_parameters():
        prefix = f"{name}/"
        for key in [key.removeprefix(prefix) for key in state if key.startswith(prefix)]:
            value = state[prefix + key]
            # Adam keeps its step count in scalar tensors on the CPU.
            if value.shape == (1,) and key == "step":
                ready = value[0].clone()
            else:
                ready = value.clone().to(parameter.device).reshape(parameter.shape)
            optimizer.state[parameter][key] = ready
    best = read_weights(path / BEST, model) if (path / BEST).is_file() else None
    for group in optimizer.param_groups:
        group["lr"] = position.rate
    return position, best


def weights_of(model: nn.Module) -> Weights:
    """Return a copy of the weights on the CPU."""
    return {k: v.detach().to("cpu", copy=True).contiguous() for k, v in model.state_dict().items()}


def read_weights(path: Path, model: nn.Module) -> Weights:
    """Read the weights of a model."""
    shapes: dict[str, Shape] = {k: tuple(v.shape) for k, v in model.state_dict().items()}
    return read_tensors(path, shapes)


def _optimizer_state(model: nn.Module, optimizer: torch.optim.Optimizer) -> Weights:
    state = {}
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                state[f"{name}/{key}"] = value.detach().cpu().reshape(value.shape or (1,))
    return state
