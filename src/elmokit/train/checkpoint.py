"""Checkpoints: everything that a run needs to resume bit-identically, without pickles.

    run/checkpoints/step-00000500/
      weights.safetensors      the biLM (`bilm.`) and the head (`head.`)
      optimizer.safetensors    the moments of the optimizer, by the names of the parameters
      state.safetensors        the LSTM states of the rows, and torch's random state
      random.safetensors       the random states of all ranks, if several processes trained
      trainer.json             step, tokens, data position, best score, config, fingerprints of
                               the corpus and of the files above

Rank 0 writes for all ranks, with the states of all rows, so that any number of ranks can resume.

Checkpoints are written atomically, and older ones are removed only afterwards, so that a complete
one always exists.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from elmokit.errors import WeightsError
from elmokit.model.lstm import LstmState
from elmokit.progress import LogFn, no_log
from elmokit.sources.modeldir import ModelParts
from elmokit.sources.tensors import Shape, read_shapes, read_tensors, write_tensors
from elmokit.storage.atomic import replace_directory, restore_directories
from elmokit.storage.fingerprint import fingerprint_file, fingerprint_texts
from elmokit.storage.manifest import read_json, write_json
from elmokit.storage.regular import check_regular_files
from elmokit.storage.tensors import open_tensors
from elmokit.train.distributed import SINGLE_PROCESS, Group
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
        step: Number of finished steps.
        position: Position in the data, see `Streams.position`.
        best: Best held-out perplexity so far.
        best_step: The step of the best perplexity.
        evaluations_since_best: For early stopping.
        evaluated: The step of the last evaluation.
        perplexity: The result of the last evaluation.
        capacity: Buffer sizes of the fast step, which affect the bits of results.
    """

    step: int
    position: dict[str, Any]
    best: float | None = None
    best_step: int = 0
    evaluations_since_best: int = 0
    evaluated: int = 0
    perplexity: Perplexity | None = None
    capacity: dict[str, int] | None = None


def save(
    run: Path,
    step: TrainStep,
    progress: Progress,
    config: dict[str, Any],
    *,
    keep: int,
    group: Group = SINGLE_PROCESS,
) -> Path:
    """Write a checkpoint, then remove all but the newest `keep` and the best."""
    path = run / FOLDER / f"step-{progress.step:08d}"
    rows = {name: group.gather(t, dim=2) for name, t in step.state._asdict().items()}
    randoms = group.gather(torch.get_rng_state().unsqueeze(0), dim=0)
    if not group.is_first:
        return path
    tensors = {f"bilm.{name}": p for name, p in step.bilm.state_dict().items()}
    tensors |= {f"head.{name}": p for name, p in step.head.state_dict().items()}
    with replace_directory(path) as folder:
        write_tensors(_plain(tensors), folder / WEIGHTS)
        count = {"count": step.optimizer.count.reshape(1)}
        write_tensors(_plain(step.moments() | count), folder / OPTIMIZER)
        write_tensors(_plain({**rows, "random": randoms[0]}), folder / STATE)
        if group.world > 1:
            write_tensors(_plain({"random": randoms}), folder / RANDOM)
        values = {**asdict(progress), "config": config, "files": _fingerprints(folder)}
        write_json(folder / TRAINER, {**values, "check": _check(values)}, indent=None)
    _remove_old(run, progress, keep)
    return path


def newest(run: Path) -> Path | None:
    """Return the newest checkpoint of a run."""
    return next(iter(_newest_first(run)), None)


def newest_intact(run: Path, log: LogFn = no_log) -> tuple[Path, Progress, dict[str, Any]]:
    """Return the newest checkpoint that is not damaged, its progress and its config.

    Raises:
        WeightsError: All checkpoints are damaged; the error is that of the newest.
    """
    errors = []
    for path in _newest_first(run):
        try:
            return path, *_open(path)
        except WeightsError as error:
            log(f"warning: {error}")
            errors.append(error)
    raise errors[0]


def load(path: Path, step: TrainStep, done: int, group: Group = SINGLE_PROCESS) -> None:
    """Load a checkpoint, saved after `done` steps, into a step."""
    parameters = {f"bilm.{n}": p for n, p in step.bilm.state_dict().items()}
    parameters |= {f"head.{n}": p for n, p in step.head.state_dict().items()}
    _fill(path / WEIGHTS, parameters)
    count = step.optimizer.count.reshape(1)
    _fill(path / OPTIMIZER, step.moments() | {"count": count})
    step.optimizer.count.copy_(count[0])
    state = {name: _of_all_rows(t, group) for name, t in step.state._asdict().items()}
    random = torch.empty_like(torch.get_rng_state())
    _fill(path / STATE, {**state, "random": random})
    step.state = LstmState(*(group.part(t, dim=2).contiguous() for t in state.values()))
    _set_random(path, group, random, done)


def load_accumulators(step: TrainStep, start: ModelParts | None) -> None:
    """Copy the accumulators of a model, if it has any, into a step that uses Adagrad.

    Adagrad divides each gradient by the root of the sum of all its previous squares. Without that
    sum, a trained model would start again with large steps.

    Args:
        step: A new step; parameters without an accumulator keep the initial value, 1.
        start: The model that the training starts from.

    Raises:
        WeightsError: The accumulators do not match the parameters.
    """
    if start is None or not start.accumulators or step.optimizer.config.kind != "adagrad":
        return
    own = step.moments()  # views of the optimizer's tensors
    with torch.no_grad():
        for name, tensor in start.accumulators.items():
            mine = own.get(f"square.{name}")
            if mine is None or mine.shape != tensor.shape:
                raise WeightsError(
                    f"The accumulator '{name}' {list(tensor.shape)} does not match the model."
                )
            mine.copy_(tensor)


def _newest_first(run: Path) -> list[Path]:
    restore_directories(run / FOLDER)
    return sorted((run / FOLDER).glob("step-*"), reverse=True)


def _open(path: Path) -> tuple[Progress, dict[str, Any]]:
    """Read progress and config, and verify all files of the checkpoint."""
    check_regular_files(path, WeightsError)
    hint = f"Remove {path} and resume from an older checkpoint, or start a new run."
    values = read_json(path / TRAINER, error=WeightsError, hint=hint)
    damaged = [] if values.pop("check", None) == _check(values) else [TRAINER]
    files = values.pop("files", {})
    for file in path.glob("*.safetensors"):
        open_tensors(file, error=WeightsError, hint=hint)  # before reading it: checks its size
    actual = {} if damaged else _fingerprints(path)
    names = actual.keys() | files
    damaged += sorted(name for name in names if actual.get(name) != files.get(name))
    if damaged:
        raise WeightsError(f"The checkpoint {path} is damaged ({', '.join(damaged)}). {hint}")
    config = values.pop("config")
    if values["perplexity"] is not None:
        values["perplexity"] = Perplexity(**values["perplexity"])
    return Progress(**values), config


def _fingerprints(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.glob("*.safetensors") if path.is_file())
    return {path.name: fingerprint_file(path) for path in files}


def _check(values: Mapping[str, Any]) -> str:
    return fingerprint_texts([json.dumps(values, sort_keys=True)])


def _of_all_rows(part: Tensor, group: Group) -> Tensor:
    return part.new_empty(*part.shape[:2], group.world * part.shape[2], part.shape[3])


def _set_random(path: Path, group: Group, random: Tensor, done: int) -> None:
    """Restore the random state of this rank; a new rank gets a new one."""
    file = path / RANDOM
    ranks = read_shapes(file)["random"][0] if file.is_file() else 1
    if group.world > 1 and group.world == ranks:
        randoms = random.repeat(ranks, 1)
        _fill(file, {"random": randoms})
        random = randoms[group.rank].clone()  # torch 2.13 crashes on a view
    if group.is_first or group.world == ranks:
        torch.set_rng_state(random)
    else:
        torch.manual_seed(torch.initial_seed() + 7919 * done)  # of (seed, rank), see `make_step`


def _fill(path: Path, tensors: Mapping[str, Tensor]) -> None:
    shapes: dict[str, Shape] = {name: tuple(t.shape) for name, t in tensors.items()}
    stored = read_tensors(path, shapes)
    with torch.no_grad():
        for name, tensor in tensors.items():
            tensor.copy_(stored[name].to(tensor.dtype))


def _plain(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.detach().cpu().contiguous() for name, t in tensors.items()}


def _remove_old(run: Path, progress: Progress, keep: int) -> None:
    # Newer checkpoints are damaged; the run will replace them.
    newest = f"step-{progress.step:08d}"
    best = f"step-{progress.best_step:08d}"
    for path in [path for path in _newest_first(run) if path.name <= newest][keep:]:
        if path.name != best:
            shutil.rmtree(path, ignore_errors=True)
