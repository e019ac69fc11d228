"""Checkpoints of task training: everything that a run needs to resume bit-identically.

    run/checkpoints/step-00000500-0002/    the numbers of completed steps and epochs
      weights.safetensors      the task model (without the frozen biLM)
      optimizer.safetensors    the optimizer state, by parameter index
      best.safetensors         the weights of the best epoch so far
      run.json                 the progress, the task, the settings and a digest of the data

The random state is not stored, because the random seed of each step is derived from the step number
and the seed of the run. Checkpoints are written atomically. The previous checkpoint is removed
only after the new one is complete.
"""

from __future__ import annotations

import re
import shutil
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, TypeAdapter
from torch import Tensor, nn

from elmokit.errors import WeightsError
from elmokit.sources.tensors import read_shapes, read_tensors, write_tensors
from elmokit.storage.atomic import replace_directory
from elmokit.storage.manifest import read_json, write_json
from elmokit.tasks.config import TrainConfig
from elmokit.tasks.task import TaskModel
from elmokit.train.checkpoint import FOLDER as FOLDER
from elmokit.train.checkpoint import newest as newest

WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
BEST = "best.safetensors"
RUN = "run.json"

Weights = dict[str, Tensor]
_Count = Annotated[int, Field(ge=0, lt=2**53)]


@dataclass
class Position:
    """The progress of a run.

    Attributes:
        rate: The current learning rate.
        step: Number of completed steps.
        epoch: Number of completed epochs.
        batch: Number of completed batches in the current epoch.
        loss: Sum of the losses of the completed batches in the current epoch.
        best: The best dev score so far.
        best_epoch: The epoch with the best dev score, counted from 1.
        seconds: Time spent up to the last checkpoint.
    """

    rate: float
    step: _Count = 0
    epoch: _Count = 0
    batch: _Count = 0
    loss: float = 0.0
    best: float | None = None
    best_epoch: int = 0
    seconds: float = 0.0


@dataclass
class Run:
    """The state of a training run, as stored in a checkpoint.

    Attributes:
        out: The directory of the run.
        identity: The task, the settings and a digest of the data.
        model: The task model.
        optimizer: The optimizer.
        settings: The training settings.
        position: The progress of the run.
        best_weights: The weights of the best epoch so far.
    """

    out: Path
    identity: dict[str, Any]
    model: TaskModel[Any]
    optimizer: torch.optim.Optimizer
    settings: TrainConfig
    position: Position
    best_weights: Weights | None = None
    _start_time: float = field(default_factory=time.monotonic)

    def save(self) -> None:
        """Write a checkpoint, then remove all others."""
        self.position.seconds = self.seconds()
        name = f"step-{self.position.step:08d}-{self.position.epoch:04d}"
        with replace_directory(self.out / FOLDER / name) as folder:
            write_tensors(copy_weights(self.model), folder / WEIGHTS)
            state = self.optimizer.state_dict()["state"]
            tensors = {f"{i}/{key}": state[i][key] for i in state for key in state[i]}
            write_tensors(tensors, folder / OPTIMIZER)
            if self.best_weights is not None:
                write_tensors(self.best_weights, folder / BEST)
            write_json(folder / RUN, {"position": asdict(self.position), **self.identity})
        for other in (self.out / FOLDER).glob("step-*"):
            if other.name != name:
                shutil.rmtree(other, ignore_errors=True)

    def load(self, path: Path) -> None:
        """Load a checkpoint."""
        self.position = read_run(path)["position"]
        self.model.load_state_dict(read_weights(path / WEIGHTS, self.model))
        state: dict[int, Weights] = defaultdict(dict)
        tensors = read_tensors(path / OPTIMIZER, read_shapes(path / OPTIMIZER))
        for name, tensor in tensors.items():
            if (match := re.fullmatch("([0-9]{1,9})/([^/]+)", name)) is None:
                raise WeightsError(
                    f"{path / OPTIMIZER} contains an unknown tensor '{name}'. The checkpoint is "
                    f"damaged. Remove the directory {path.parent} to start over."
                )
            state[int(match[1])][match[2]] = tensor.clone()
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        self.set_learning_rate(self.position.rate)
        if (path / BEST).is_file():
            self.best_weights = read_weights(path / BEST, self.model)
        self._start_time = time.monotonic() - self.position.seconds

    def set_learning_rate(self, rate: float) -> None:
        """Set the learning rate."""
        self.position.rate = rate
        for group in self.optimizer.param_groups:
            group["lr"] = rate

    def unsaved_seconds(self) -> float:
        """Return the number of seconds since the last checkpoint."""
        return self.seconds() - self.position.seconds

    def seconds(self) -> float:
        """Return the total time spent on the run, including the time in earlier processes."""
        return time.monotonic() - self._start_time


def read_run(path: Path) -> dict[str, Any]:
    """Return the position, task, settings and data digest of a run, without loading weights."""
    hint = f"The checkpoint is damaged. Remove the directory {path.parent} to start over."
    values = read_json(path / RUN, error=WeightsError, hint=hint)
    try:
        position = TypeAdapter(Position).validate_python(values["position"])
        return {name: values[name] for name in ("task", "config", "data")} | {"position": position}
    except (KeyError, ValueError) as error:
        raise WeightsError(f"{path / RUN} is invalid ({error!r}). {hint}") from error


def copy_weights(model: nn.Module) -> Weights:
    """Copy the weights of a model to the CPU."""
    return {k: v.detach().to("cpu", copy=True).contiguous() for k, v in model.state_dict().items()}


def read_weights(path: Path, model: nn.Module) -> Weights:
    """Read the weights of a model from a file."""
    return read_tensors(path, {k: tuple(v.shape) for k, v in model.state_dict().items()})
