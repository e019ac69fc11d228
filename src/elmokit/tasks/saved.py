"""A task directory: everything that `elmo task NAME predict` needs, without pickle.

    config.json             the settings, the biLM, the scores and the learned mixes
    labels.json             labels and other information from the training data
    weights.safetensors     the task model, without the biLM
    words/                  the vocabulary and word vectors, see `words.py`
    README.md               the model card
    metrics.jsonl           one line per epoch
    test.jsonl              the predictions for the test set, if there was one

config.json is written last: if it exists, the directory is complete.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic

import torch

from elmokit import __version__
from elmokit.device import choose_device
from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.layer_cache import LiveLayers
from elmokit.embed.loading import load
from elmokit.embed.model import ElmoModel
from elmokit.errors import ConfigError, OutputError, WeightsError
from elmokit.model.skip_init import skip_init
from elmokit.settings import differences
from elmokit.sources.resolve import named_models
from elmokit.sources.tensors import write_tensors
from elmokit.storage.atomic import replace_directory, replace_file, write_text
from elmokit.storage.manifest import check_format, read_json, write_json
from elmokit.storage.regular import check_regular_files
from elmokit.tasks import checkpoint
from elmokit.tasks.batches import Dataset, E, collect_texts, plan_batches
from elmokit.tasks.checkpoint import WEIGHTS, Run, read_weights
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.data import Data
from elmokit.tasks.nn.elmo import BilmInfo
from elmokit.tasks.registry import task_command
from elmokit.tasks.task import LabelInfo, Task, TaskModel
from elmokit.tasks.words import WordTable
from elmokit.train.metrics import FILE as METRICS

FORMAT = "elmokit-task"
FORMAT_VERSION = 1
CONFIG = "config.json"
LABELS = "labels.json"
CARD = "README.md"
TEST = "test.jsonl"
WORDS = "words"
_HINT = "Copy the directory again, or train the task model again."

_FILES = {CONFIG, LABELS, WEIGHTS, WORDS, CARD, TEST, METRICS, checkpoint.FOLDER}
# Settings that may change when a run is resumed: how often checkpoints are written and, unless the
# run is finished, its length.
_ALWAYS_CHANGEABLE = ("train.checkpoint_every", "train.checkpoint_seconds")
_CHANGEABLE = ("train.epochs", "train.patience", *_ALWAYS_CHANGEABLE)
# Evaluation batches are larger than training batches, because evaluation needs less memory.
_EVALUATION_BATCH_FACTOR = 4


@dataclass(frozen=True, eq=False)
class SavedTask(Generic[E]):
    """A trained task model and its biLM.

    Attributes:
        task: The task.
        config: The settings that the model was trained with.
        label_info: The result of `Task.collect_labels`.
        model: The task model.
        elmo: The biLM; None if the model was trained without ELMo.
        device: Device to compute on.
        results: The results of the training run, see `TaskResult`.
    """

    task: Task[E]
    config: TaskConfig
    label_info: LabelInfo
    model: TaskModel[E]
    elmo: ElmoModel | None
    device: torch.device
    results: dict[str, Any]

    def predict(self, examples: Sequence[E]) -> list[Any]:
        """Return a prediction for each example."""
        layers = None
        if self.elmo is not None:
            options = {"state": self.config.elmo.state, "storage": self.config.elmo.storage}
            layers = LiveLayers(self.elmo, collect_texts(examples), self.device, **options)
        return predict(self.model, Dataset(examples, layers, self.device), self.config)


@torch.no_grad()
def predict(model: TaskModel[E], data: Dataset[E], config: TaskConfig) -> list[Any]:
    """Return a prediction for each example, in the order of the examples."""
    model.eval()
    results: list[Any] = [None] * len(data)
    size, tokens = config.train.batch_size, config.train.batch_tokens
    max_examples, max_tokens = (_EVALUATION_BATCH_FACTOR * n for n in (size, tokens))
    for indices in plan_batches(data.sizes, max_examples, max_tokens):
        for i, prediction in zip(indices, model.decode(data.batch(indices)), strict=True):
            results[i] = prediction
    return results


def is_task_dir(path: Path) -> bool:
    """Return whether a directory contains a trained task model."""
    return (path / CONFIG).is_file() and (path / LABELS).is_file()


def save(
    run: Run, task: Task[E], config: TaskConfig, data: Data[E], results: Mapping[str, Any]
) -> None:
    """Write the task directory of a finished run."""
    assert run.best_weights is not None
    path = run.out
    with replace_file(path / WEIGHTS) as file:
        write_tensors(run.best_weights, file)
    with replace_directory(path / WORDS) as folder:
        data.words.save(folder)
    write_json(path / LABELS, data.label_info, ensure_ascii=False, indent=1)
    elmo = data.bilm and replace(data.bilm, model=_relative_path(data.bilm.model, path))
    values = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "elmokit": __version__,
        **run.identity,
        "elmo": elmo and elmo.to_dict(),
        "results": results,
    }
    write_text(path / CARD, _format_card(task, config, elmo, results) + "\n")
    write_json(path / CONFIG, values, ensure_ascii=False)


def check_folder(
    out: Path, task: Task[Any], config: TaskConfig, *, resume: bool
) -> dict[str, Any] | None:
    """Check that a run with these settings can be started or resumed in a directory.

    This is called before data is read and layers are computed.

    Returns:
        The task, the settings and the data digest of the run in the directory; None if there is no
        run.
    """
    is_finished = is_task_dir(out)
    # Names that begin with a dot are temporary files of killed runs.
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    if not is_finished and (unknown := sorted(names - _FILES)):
        raise OutputError(
            f"{out} contains files that do not belong to a task model "
            f"({', '.join(unknown[:5])}). Choose a new or empty directory."
        )
    path = out if is_finished else checkpoint.newest(out)
    if path is None:
        return None
    if not resume:
        contents = "trained task model" if is_finished else f"run ({path.name})"
        raise OutputError(
            f"{out} already contains a {contents}. Resume training with --resume, or choose "
            "another directory."
        )
    run = read_config(out) if is_finished else checkpoint.read_run(path)
    if run["task"] != task.name:
        raise ConfigError(f"The run in {out} trains the task '{run['task']}', not '{task.name}'.")
    previous = TaskConfig.from_dict(run["config"], type(config.model))
    ignored = _ALWAYS_CHANGEABLE if is_finished else _CHANGEABLE
    if changed := differences(config, previous, ignore=ignored):
        raise ConfigError(
            f"The run in {out} was {'finished' if is_finished else 'started'} with different "
            f"settings: {', '.join(changed)}. Use the same settings, or start a new run in another "
            "directory."
        )
    return run


def load_saved(
    path: Path, task: Task[E], *, model: str | None = None, device: str | torch.device = "auto"
) -> SavedTask[E]:
    """Load a task directory.

    Args:
        path: The directory.
        task: The task.
        model: The name or path of the biLM, if it has moved since training.
        device: Device to compute on.
    """
    path = Path(path)
    values = read_config(path)
    check_regular_files(path, ConfigError)
    if values["task"] != task.name:
        raise ConfigError(
            f"{path} contains a model of the task '{values['task']}', not '{task.name}'."
        )
    label_info, words = read_json(path / LABELS), WordTable.load(path / WORDS)
    try:
        model_config = type(next(iter(task.presets.values())).model)
        config = TaskConfig.from_dict(values["config"], model_config)
        bilm = None if values["elmo"] is None else BilmInfo.from_dict(values["elmo"])
        # No memory is allocated until the sizes in the file are known to match the weights.
        with skip_init():
            skeleton = type(task).network(config, label_info, words, bilm)
        weights = read_weights(path / WEIGHTS, skeleton)
        network = type(task).network(config, label_info, words, bilm)
    except ConfigError as error:
        raise ConfigError(f"{path / CONFIG}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise ConfigError(
            f"{path} is damaged: {CONFIG} and {LABELS} do not describe a model of the task "
            f"'{task.name}' ({error!r}). {_HINT}"
        ) from error
    network.load_state_dict(weights)
    device = choose_device(device)
    elmo = None if bilm is None else _load_elmo(path, bilm, config, model, device)
    network = network.to(device).eval()
    return SavedTask(task, config, label_info, network, elmo, device, values["results"])


def read_config(path: Path) -> dict[str, Any]:
    """Read the config.json of a task directory."""
    if not is_task_dir(path):
        raise ConfigError(
            f"No trained task model found in {path}. Train one with: elmo task NAME train TRAIN "
            f"DEV -o {path}"
        )
    values = read_json(path / CONFIG)
    check_format(values, path / CONFIG, FORMAT, FORMAT_VERSION)
    missing = {"task", "elmo", "data", "results", "config"} - values.keys()
    if missing:
        raise ConfigError(
            f"{path / CONFIG} does not contain all keys (missing: {', '.join(sorted(missing))}). "
            f"{_HINT}"
        )
    if not isinstance(values["results"], dict):
        raise ConfigError(f"{path / CONFIG}: 'results' is not an object. {_HINT}")
    return values


def _load_elmo(
    path: Path, bilm: BilmInfo, config: TaskConfig, model: str | None, device: torch.device
) -> ElmoModel:
    try:
        elmo = load(model or _resolve_bilm(bilm.model, path), None, device, bilm.precision, "torch")
    except WeightsError as error:
        raise WeightsError(
            f"Cannot load the biLM that {path} was trained with "
            f"({bilm.model or 'the bundled model'}): {error} Specify the biLM with --model. For "
            "security, a model that is named in a file is never downloaded."
        ) from error
    if fingerprint(elmo, config.elmo.state) != bilm.fingerprint:
        raise WeightsError(
            f"The biLM {elmo.source} is not the one that {path} was trained with "
            f"({_bilm_name(bilm)}). Specify the original biLM with --model."
        )
    return elmo


def _bilm_name(bilm: BilmInfo) -> str:
    return bilm.name or bilm.model or "the bundled model"


def _relative_path(model: str | None, path: Path) -> str | None:
    """Return the biLM for config.json: a name, or a path relative to the task directory."""
    if model is None or not Path(model).exists():
        return model
    relative = Path(os.path.relpath(model, path.resolve())).as_posix()
    return relative if relative.startswith("..") else f"./{relative}"


def _resolve_bilm(model: str | None, path: Path) -> str | Path | None:
    """Return the biLM that a config.json specifies: the name of an installed model, or a path.

    The file is not trusted: URLs and names of published models are treated as paths, so that
    nothing is downloaded.
    """
    return model if model is None or model in named_models() else path.resolve() / model


def format_mix(mix: Mapping[str, Any]) -> str:
    """Return the learned weights s_j and gamma as text."""
    s = ", ".join(f"s_{j} = {value:.3f}" for j, value in enumerate(mix["s"]))
    return f"{s}; gamma = {mix['gamma']:.3f}"


def _format_card(
    task: Task[E], config: TaskConfig, elmo: BilmInfo | None, results: Mapping[str, Any]
) -> str:
    rows: dict[str, Any] = {"task": task.name, "ELMo": "none"}
    if elmo is not None:
        rows["ELMo"] = f"{_bilm_name(elmo)} ({elmo.fingerprint[:12]}), place: {config.elmo.place}"
    rows |= {"static vectors": config.static.source, "seed": config.train.seed}
    for split in ("dev", "test"):
        if scores := results.get(split):
            rows[f"{split} {task.metric}"] = f"{scores[task.metric]:.2f}"
    rows |= {f"mix at the {place}": format_mix(mix) for place, mix in results["mixes"].items()}
    table = "\n".join(f"| {label} | {text} |" for label, text in rows.items())
    return f"""# {task.name}

A task model trained with elmokit. Use it with `{task_command(task.name)} predict FOLDER FILE`.

| | |
|---|---|
{table}

The training data and its license were not recorded. Please add them here."""
