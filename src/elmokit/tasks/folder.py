"""Whether a run may be made in a folder: begun there, gone on with, or found to be finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elmokit.errors import ConfigError, DataError, OutputError
from elmokit.settings import differences
from elmokit.tasks import checkpoint, saved
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.data import Data
from elmokit.tasks.registry import command_of
from elmokit.tasks.task import Task
from elmokit.train.metrics import FILE

# What may change when a run is resumed: how far it goes, and how often it is saved.
_SAVING = ("train.checkpoint_every", "train.checkpoint_seconds")
_MAY_CHANGE = ("train.epochs", "train.patience", *_SAVING)


def check_folder(
    out: Path, task: Task[Any], config: TaskConfig, *, resume: bool
) -> dict[str, Any] | None:
    """Refuse a folder where a run with these settings cannot be made.

    It needs no data, so that it can be asked before they are read and layers are computed.

    Returns:
        The config.json of the run that has ended there, if one has.
    """
    if saved.is_task_dir(out):
        if not resume:
            raise OutputError(
                f"{out} holds a trained task model already. Choose another folder, or remove it."
            )
        values = saved.read_config(out)
        then = _check_settings(out, task, config, values)
        if changed := differences(config, then, ignore=_SAVING):
            raise ConfigError(
                f"The run in {out} has ended and cannot be made longer ({', '.join(changed)} "
                "changed). Start a new one in another folder."
            )
        return values
    foreign = sorted(saved.foreign(out) - {FILE, checkpoint.FOLDER})
    if foreign:
        raise OutputError(
            f"{out} holds other things ({', '.join(foreign[:5])}). Choose a folder that is new or "
            "empty."
        )
    if (path := checkpoint.newest(out)) is None:
        return None
    if not resume:
        raise ConfigError(
            f"{out} already holds a run ({path.name}). Go on with --resume, or choose another "
            "folder."
        )
    _check_settings(out, task, config, checkpoint.read_run(path))
    return None


def results_of(out: Path, values: dict[str, Any], data: Data[Any]) -> dict[str, Any]:
    """Return the results of a run that has ended; refuse other data than it had."""
    check_data(out, data, values)
    results: dict[str, Any] = values["results"]
    # Folders of earlier versions do not tell which file they were measured on.
    measured = values.get("test", data.test_digest if results.get("test") else None)
    if data.test is not None and measured != data.test_digest:
        with_another = "with another test file" if measured else "without a test file"
        raise DataError(
            f"The run in {out} ended {with_another}. Measure this one with: "
            f"{command_of(values['task'])} evaluate {out} FILE"
        )
    return results


def check_data(out: Path, data: Data[Any], then: dict[str, Any]) -> None:
    """Refuse to go on with other data than the run began with."""
    if data.digest != then["data"]:
        raise DataError(
            f"The run in {out} was started with other data: the files, the word vectors or the "
            "biLM have changed. Give the same ones, or start a new run."
        )


def _check_settings(out: Path, task: Task[Any], now: TaskConfig, run: dict[str, Any]) -> TaskConfig:
    """Return the settings a run was started with; refuse to continue with different ones."""
    if run["task"] != task.name:
        raise ConfigError(f"The run in {out} is one of the task '{run['task']}'.")
    then = TaskConfig.from_dict(run["config"], type(now.model))
    if changed := differences(now, then, ignore=_MAY_CHANGE):
        raise ConfigError(
            f"The run in {out} was started with different settings: {', '.join(changed)}. Give the "
            "same ones, or start a new run in another folder."
        )
    return then
