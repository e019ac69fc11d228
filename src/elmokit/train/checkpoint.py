"""Save and load checkpoints of a training run.

A checkpoint contains everything that is needed to resume the run with bit-identical results:

    run/checkpoints/step-00000500/
      weights.safetensors      the weights of the biLM (`bilm.`) and the head (`head.`)
      optimizer.safetensors    the optimizer moments of each parameter
      state.safetensors        the LSTM states of all rows, and the random state of rank 0
      random.safetensors       the random states of all ranks, if there are several
      trainer.json             the progress, the settings, and the fingerprints of the corpus and of
                               the files above

Only rank 0 writes checkpoints. They contain the LSTM states of the rows of all ranks, so that a run
can be resumed with a different number of ranks.

Each checkpoint is written atomically before older ones are removed, so there is always a complete
one.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, TypeAdapter
from torch import Tensor

from elmokit.errors import WeightsError
from elmokit.model.bilm import BiLM
from elmokit.model.lstm import LstmState
from elmokit.model.softmax import LMHead
from elmokit.progress import LogFn, no_log
from elmokit.sources.modeldir import ModelParts
from elmokit.sources.tensors import Shape, read_shapes, read_tensors, write_tensors
from elmokit.storage.atomic import replace_directory, restore_directories
from elmokit.storage.fingerprint import fingerprint_file, fingerprint_texts
from elmokit.storage.manifest import read_json, write_json
from elmokit.storage.regular import check_regular_files
from elmokit.storage.tensors import open_tensors
from elmokit.train.distributed import Group
from elmokit.train.evaluate import Perplexity
from elmokit.train.step import TrainStep

FOLDER = "checkpoints"
WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"
STATE = "state.safetensors"
RANDOM = "random.safetensors"
TRAINER = "trainer.json"


@dataclass
class Progress:
    """The progress of a run.

    Attributes:
        step: Number of completed steps.
        position: Position in the data; see `Streams.position`.
        best: The best held-out perplexity so far.
        best_step: The step with the best perplexity.
        evaluations_since_best: Number of evaluations after `best_step`, for early stopping.
        evaluated_step: The step of the last evaluation.
        perplexity: The result of the last evaluation.
        capacity: The buffer sizes of `FastStep`. They are restored because they affect rounding.
    """

    step: Annotated[int, Field(ge=0, lt=2**53)]
    position: dict[str, Any]
    best: float | None = None
    best_step: int = 0
    evaluations_since_best: int = 0
    evaluated_step: int = 0
    perplexity: Perplexity | None = None
    capacity: dict[Annotated[str, Field(pattern="^[0-9]+$")], int] | None = None


def save(
    run: Path,
    step: TrainStep,
    progress: Progress,
    config: dict[str, Any],
    *,
    keep: int,
) -> None:
    """Write a checkpoint, then remove all checkpoints except the newest `keep` and the best."""
    group = step.group
    state = {name: group.gather(t, dim=2) for name, t in step.state._asdict().items()}
    random_states = group.gather(torch.get_rng_state().unsqueeze(0), dim=0)
    if not group.is_first:
        return
    with replace_directory(run / FOLDER / f"step-{progress.step:08d}") as folder:
        write_tensors(named_weights(step.bilm, step.head), folder / WEIGHTS)
        write_tensors(_optimizer_state(step), folder / OPTIMIZER)
        write_tensors({**state, "random": random_states[0]}, folder / STATE)
        if group.world_size > 1:
            write_tensors({"random": random_states}, folder / RANDOM)
        values = {**asdict(progress), "config": config, "files": _fingerprints(folder)}
        write_json(folder / TRAINER, {**values, "check": _checksum(values)}, indent=None)
    _remove_old(run, progress, keep)


def newest(run: Path) -> Path | None:
    """Return the newest checkpoint of a run."""
    return next(iter(_newest_first(run)), None)


def newest_intact(run: Path, log: LogFn = no_log) -> tuple[Path, Progress, dict[str, Any]]:
    """Return the newest undamaged checkpoint of a run, its progress and its config.

    Raises:
        WeightsError: All checkpoints are damaged. The message is about the newest one.
    """
    errors = []
    for path in _newest_first(run):
        try:
            return path, *_open(path)
        except WeightsError as error:
            log(f"Warning: {error}")
            errors.append(error)
    raise errors[0]


def load_best(run: Path, step: TrainStep, progress: Progress) -> Progress | None:
    """Load the best checkpoint of a run into `step`, and return its progress if it was saved."""
    path = run / FOLDER / f"step-{progress.best_step:08d}"
    if not path.is_dir():
        return None
    best, _ = _open(path)
    load(path, step, best.step)
    return best


def load(path: Path, step: TrainStep, n_steps: int) -> None:
    """Load into `step` a checkpoint that was saved after `n_steps` steps."""
    group = step.group
    _read_into(named_weights(step.bilm, step.head), path / WEIGHTS)
    _read_into(_optimizer_state(step), path / OPTIMIZER)
    # Allocate tensors for the rows of all ranks. Their values are overwritten.
    state = {n: t.repeat(1, 1, group.world_size, 1) for n, t in step.state._asdict().items()}
    random_state = torch.empty_like(torch.get_rng_state())
    _read_into({**state, "random": random_state}, path / STATE)
    step.state = LstmState(*(group.local_slice(t, dim=2).contiguous() for t in state.values()))
    _restore_random_state(path, group, random_state, n_steps)


def load_accumulators(step: TrainStep, initial: ModelParts | None) -> None:
    """Initialize Adagrad with the accumulators of the initial model, if any.

    Adagrad divides each gradient by the square root of the sum of all squared gradients so far.
    Without this sum, the first updates of a trained model would be too large.

    Args:
        step: A new training step. Parameters without an accumulator keep the initial value of 1.
        initial: The initial model.

    Raises:
        WeightsError: The accumulators do not match the parameters.
    """
    if initial is None or not initial.accumulators or step.optimizer.config.kind != "adagrad":
        return
    moments = step.moments()  # views of the optimizer's tensors
    with torch.no_grad():
        for name, accumulator in initial.accumulators.items():
            square = moments.get(f"square.{name}")
            if square is None or square.shape != accumulator.shape:
                raise WeightsError(
                    f"The accumulator '{name}' with shape {list(accumulator.shape)} does not match "
                    "the model. Check that the files belong to the same model."
                )
            square.copy_(accumulator)


def _newest_first(run: Path) -> list[Path]:
    restore_directories(run / FOLDER)
    return sorted((run / FOLDER).glob("step-*"), reverse=True)


def _open(path: Path) -> tuple[Progress, dict[str, Any]]:
    """Return the progress and config of a checkpoint after verifying all its files."""
    check_regular_files(path, WeightsError)
    hint = f"Remove {path} and resume from an older checkpoint, or start a new run."
    values = read_json(path / TRAINER, error=WeightsError, hint=hint)
    for file in path.glob("*.safetensors"):
        open_tensors(file, error=WeightsError, hint=hint)  # checks the size before the file is read
    try:
        damaged = [] if values.pop("check") == _checksum(values) else [TRAINER]
        files, config = dict(values.pop("files")), dict(values.pop("config"))
        progress = TypeAdapter(Progress).validate_python(values)
    except (KeyError, TypeError, ValueError):
        damaged = [TRAINER]
    if not damaged:
        actual = _fingerprints(path)
        names = actual.keys() | files
        damaged = sorted(name for name in names if actual.get(name) != files.get(name))
    if damaged:
        raise WeightsError(f"The checkpoint {path} is damaged ({', '.join(damaged)}). {hint}")
    return progress, config


def _fingerprints(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    return {path.name: fingerprint_file(path) for path in files}


def _checksum(values: Mapping[str, Any]) -> str:
    return fingerprint_texts([json.dumps(values, sort_keys=True)])


def named_weights(bilm: BiLM, head: LMHead) -> dict[str, Tensor]:
    """Return the weights of a biLM and its head by name."""
    modules = {"bilm": bilm, "head": head}
    return {f"{m}.{name}": t for m in modules for name, t in modules[m].state_dict().items()}


def _optimizer_state(step: TrainStep) -> dict[str, Tensor]:
    """Return views of the moments and the number of steps."""
    return step.moments() | {"count": step.optimizer.count.view(1)}


def _restore_random_state(path: Path, group: Group, random_state: Tensor, n_steps: int) -> None:
    """Restore the random state of this rank.

    If the number of ranks has changed, only rank 0 restores its state. The others get new seeds.
    """
    file = path / RANDOM
    n_saved = read_shapes(file)["random"][0] if file.is_file() else 1
    if group.world_size > 1 and group.world_size == n_saved:
        random_states = random_state.repeat(n_saved, 1)
        _read_into({"random": random_states}, file)
        random_state = random_states[group.rank].clone()  # torch 2.13 crashes on a view
    if group.is_first or group.world_size == n_saved:
        torch.set_rng_state(random_state)
    else:  # `make_step` derives the initial seed from the run's seed and the rank
        torch.manual_seed(torch.initial_seed() + 7919 * n_steps)


def _read_into(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Overwrite tensors with those in a file."""
    shapes: dict[str, Shape] = {name: tuple(t.shape) for name, t in tensors.items()}
    stored = read_tensors(path, shapes)
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(stored[name].to(tensor.dtype))


def _remove_old(run: Path, progress: Progress, keep: int) -> None:
    """Remove all checkpoints except the newest `keep` and the best.

    Checkpoints of later steps are not removed: they are damaged, and the run will replace them.
    """
    newest = f"step-{progress.step:08d}"
    best = f"step-{progress.best_step:08d}"
    for path in [path for path in _newest_first(run) if path.name <= newest][keep:]:
        if path.name != best:
            shutil.rmtree(path, ignore_errors=True)
