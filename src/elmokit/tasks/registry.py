"""The built-in tasks by name, and custom tasks from Python files.

This module does not import torch, so that `elmo task --help` is fast.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.errors import ConfigError, suggest

if TYPE_CHECKING:
    from elmokit.tasks.task import Task


#: The name of each task (and of its module), and a one-line summary.
TASKS = {
    "ner": "Named entity recognition: CoNLL-2003 columns, span F1.",
    "sst5": "Sentiment classification: SST trees, accuracy.",
    "snli": "Textual entailment: SNLI, accuracy.",
    "squad": "Question answering: SQuAD v1.1, F1 and exact match.",
    "srl": "Semantic role labeling: PropBank, argument F1.",
    "coref": "Coreference resolution: CoNLL-2012 columns, CoNLL F1.",
}


def is_task_file(name: str) -> bool:
    """Return whether a task is specified by a Python file instead of a name."""
    return name.endswith(".py")


def task_command(name: str) -> str:
    """Return the `elmo task` command; for a custom task, the file name is a placeholder."""
    return f"elmo task {name if name in TASKS else 'my_task.py'}"


def load_task(name: str) -> Task[Any]:
    """Return a built-in task by name, or the task that a Python file defines."""
    if name in TASKS:
        module = importlib.import_module(f"elmokit.tasks.{name}")
    elif is_task_file(name):
        module = _import_file(Path(name))
    else:
        raise ConfigError(
            f"Unknown task '{name}'.{suggest(name, TASKS)} Expected one of {', '.join(TASKS)}, or "
            "a Python file that defines a subclass of elmokit.tasks.task.Task."
        )
    from elmokit.tasks.task import Task

    tasks = [
        cls
        for cls in vars(module).values()
        if inspect.isclass(cls) and issubclass(cls, Task) and cls.__module__ == module.__name__
    ]
    if len(tasks) != 1:
        raise ConfigError(f"{name} defines {len(tasks)} subclasses of Task; expected exactly one.")
    task: Task[Any] = tasks[0]()
    return task


def _import_file(path: Path) -> Any:
    if not path.is_file():
        raise ConfigError(f"The task file {path} does not exist. Check the path.")
    spec = importlib.util.spec_from_file_location(f"elmokit_task_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look up their module in `sys.modules`.
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module
