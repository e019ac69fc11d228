"""Whether a run may be made in a folder: begun there, gone on with, or found to be finished."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from elmokit.errors import ConfigError, DataError, OutputError
from elmokit.tasks import checkpoint, saved
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.data import Data
from elmokit.tasks.registry import command_of
from elmokit.tasks.task import Task
from elmokit.train.metrics import FILE

# What may change when a run is resumed: how far it goes, and how often it is saved.
_LENGTH = ("epochs", "patience")
_FREE = {("train", key) for key in (*_LENGTH, "checkpoint_every", "checkpoint_seconds")}


def check_folder(out: Path, task: Task[Any], config: TaskConfig, *, resume: bool) -> None:
    """Refuse a folder where a run with these settings cannot be made.

    It needs no data, so that it can be asked before they are read and layers are computed.
    """
    about = {"task": task.name, "config": config.to_dict()}
    if saved.is_task_dir(out):
        if not resume:
            raise OutputError(
                f"{out} holds a trained task model already. Choose another folder, or remove it."
            )
        values = saved.read_config(out)
        _check_settings(out, about, values)
        _check_length(out, about, values)
        return
    if out.is_file():
        raise OutputError(f"Cannot write the folder {out}: a file is there. Choose another name.")
    foreign = sorted(saved.foreign(out) - {FILE, checkpoint.FOLDER})
    if foreign:
        raise OutputError(
            f"{out} holds other things ({', '.join(foreign[:5])}). Choose a folder that is new or "
            "empty."
        )
    if (path := checkpoint.newest(out)) is None:
        return
    if not resume:
        raise ConfigError(
            f"{out} already holds a run ({path.name}). Go on with --resume, or choose another "
            "folder."
        )
    _check_settings(out, about, checkpoint.read_run(path))


def finished(out: Path, data: Data[Any]) -> dict[str, Any] | None:
    """Return the results of a run that has ended in a folder, if one has, with the same data."""
    if not saved.is_task_dir(out):
        return None
    values = saved.read_config(out)
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


def _check_settings(out: Path, now: dict[str, Any], then: dict[str, Any]) -> None:
    if now["task"] != then["task"]:
        raise ConfigError(f"The run in {out} is one of the task '{then['task']}'.")
    changed = [
        f"{section}.{key}"
        for section, values in now["config"].items()
        for key, value in values.items()
        if then["config"][section].get(key) != value and (section, key) not in _FREE
    ]
    if changed:
        raise ConfigError(
            f"The run in {out} was started with other settings: {', '.join(changed)} differ. "
            "Give the same ones, or start a new run."
        )


def _check_length(out: Path, now: dict[str, Any], then: dict[str, Any]) -> None:
    """Refuse to make a run longer that has ended: what it would go on with is gone."""
    before, asked = then["config"]["train"], now["config"]["train"]
    changed = [f"train.{key}={before.get(key)}" for key in _LENGTH if before.get(key) != asked[key]]
    if changed:
        raise ConfigError(
            f"The run in {out} has ended, with {' and '.join(changed)}, and cannot be made longer. "
            "Start a new one in another folder."
        )
