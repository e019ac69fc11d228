"""Check whether a run can be started or resumed in a directory, or is already finished."""

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

# Settings that may change when a run is resumed: its length and how often it is saved.
_SAVING = ("train.checkpoint_every", "train.checkpoint_seconds")
_MAY_CHANGE = ("train.epochs", "train.patience", *_SAVING)


def check_folder(
    out: Path, task: Task[Any], config: TaskConfig, *, resume: bool
) -> dict[str, Any] | None:
    """Reject a directory in which a run with these settings is not possible.

    Needs no data, so it can be called before data is read and layers are computed.

    Returns:
        The config.json of the finished run in the directory, if any.
    """
    if saved.is_task_dir(out):
        if not resume:
            raise OutputError(
                f"{out} already contains a trained task model. Choose another directory or "
                "remove it."
            )
        values = saved.read_config(out)
        then = _check_settings(out, task, config, values)
        if changed := differences(config, then, ignore=_SAVING):
            raise ConfigError(
                f"The run in {out} is finished and cannot be extended ({', '.join(changed)} "
                "changed). Start a new run in another directory."
            )
        return values
    foreign = sorted(saved.foreign(out) - {FILE, checkpoint.FOLDER})
    if foreign:
        raise OutputError(
            f"{out} contains other files ({', '.join(foreign[:5])}). Choose a new or empty "
            "directory."
        )
    if (path := checkpoint.newest(out)) is None:
        return None
    if not resume:
        raise ConfigError(
            f"{out} already contains a run ({path.name}). Continue it with --resume, or choose "
            "another directory."
        )
    _check_settings(out, task, config, checkpoint.read_run(path))
    return None


def results_of(out: Path, values: dict[str, Any], data: Data[Any]) -> dict[str, Any]:
    """Return the results of a finished run; reject different data."""
    check_data(out, data, values)
    results: dict[str, Any] = values["results"]
    # Directories of earlier versions do not record the test file.
    measured = values.get("test", data.test_digest if results.get("test") else None)
    if data.test is not None and measured != data.test_digest:
        with_another = "with a different test file" if measured else "without a test file"
        raise DataError(
            f"The run in {out} was finished {with_another}. Evaluate this file with: "
            f"{command_of(values['task'])} evaluate {out} FILE"
        )
    return results


def check_data(out: Path, data: Data[Any], then: dict[str, Any]) -> None:
    """Reject data that differs from the data that the run was started with."""
    if data.digest != then["data"]:
        raise DataError(
            f"The run in {out} was started with different data: the files, the word vectors or "
            "the biLM have changed. Use the same ones, or start a new run."
        )


def _check_settings(out: Path, task: Task[Any], now: TaskConfig, run: dict[str, Any]) -> TaskConfig:
    """Return the settings that a run was started with; reject different ones."""
    if run["task"] != task.name:
        raise ConfigError(
            f"The run in {out} belongs to the task '{run['task']}', not '{task.name}'."
        )
    then = TaskConfig.from_dict(run["config"], type(now.model))
    if changed := differences(now, then, ignore=_MAY_CHANGE):
        raise ConfigError(
            f"The run in {out} was started with different settings: {', '.join(changed)}. Use the "
            "same settings, or start a new run in another directory."
        )
    return then
