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

# Settings that may change when a run is resumed: how often it is saved and, before it is
# finished, its length.
_SAVING = ("train.checkpoint_every", "train.checkpoint_seconds")
_MAY_CHANGE = ("train.epochs", "train.patience", *_SAVING)
_OWN_FILES = {*saved.FILES, FILE, checkpoint.FOLDER}


def check_folder(
    out: Path, task: Task[Any], config: TaskConfig, *, resume: bool
) -> dict[str, Any] | None:
    """Reject a directory in which a run with these settings is not possible.

    Needs no data, so it can be called before data is read and layers are computed.

    Returns:
        The identity of the run in the directory, finished or not, if there is one.
    """
    is_finished = saved.is_task_dir(out)
    # Names that begin with a dot are temporary files of killed runs.
    names = {path.name for path in out.iterdir() if not path.name.startswith(".")}
    if not is_finished and (foreign := sorted(names - _OWN_FILES)):
        raise OutputError(
            f"{out} contains other files ({', '.join(foreign[:5])}). Choose a new or empty "
            "directory."
        )
    path = out if is_finished else checkpoint.newest(out)
    if path is None:
        return None
    if not resume:
        what = "trained task model" if is_finished else f"run ({path.name})"
        raise OutputError(
            f"{out} already contains a {what}. Continue it with --resume, or choose another "
            "directory."
        )
    run = saved.read_config(out) if is_finished else checkpoint.read_run(path)
    if run["task"] != task.name:
        raise ConfigError(f"The run in {out} is of the task '{run['task']}', not '{task.name}'.")
    then = TaskConfig.from_dict(run["config"], type(config.model))
    if changed := differences(config, then, ignore=_SAVING if is_finished else _MAY_CHANGE):
        state = "finished" if is_finished else "started"
        raise ConfigError(
            f"The run in {out} was {state} with different settings: {', '.join(changed)}. Use the "
            "same settings, or start a new run in another directory."
        )
    return run


def check_data(out: Path, data: Data[Any], run: dict[str, Any]) -> None:
    """Reject data that differs from the data that the run was started with."""
    if data.digest != run["data"]:
        raise DataError(
            f"The run in {out} was started with different data: the files, the word vectors or "
            "the biLM have changed. Use the same ones, or start a new run. To score a finished "
            f"run on another file, use: {command_of(run['task'])} evaluate {out} FILE"
        )
