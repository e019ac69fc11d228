"""What is served: models, task models, an index, static vectors, and the work they can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.model import ElmoModel, load
from elmokit.embed.scoring import score
from elmokit.embed.static import StaticVectors, load_static
from elmokit.embed.substitutes import substitutes_at
from elmokit.errors import ConfigError, nearest
from elmokit.search.index import TokenIndex
from elmokit.serve.batching import Work
from elmokit.serve.errors import RequestRejected
from elmokit.serve.settings import Settings
from elmokit.tasks.registry import TASKS, load_task
from elmokit.tasks.saved import SavedTask, is_task_dir, load_saved, read_config
from elmokit.tasks.task import Task

# The full softmax costs several times as much per token as the biLM.
_HEAD_TOKENS = 512
_TASK_TOKENS = 2048
# Maximum characters of a token for models without a character encoder.
_LONGEST = 1000


@dataclass
class Hosted:
    """The models and task models by name.

    Attributes:
        models: The models; the first is the default.
        fingerprints: The fingerprint of each model.
        longest: The number of characters of a token that each model reads at most.
        tasks: The task models.
        index: The index for neighbors, if there is one, built with the model `index_model`.
        static: Static vectors to compare with, if there are any.
    """

    models: dict[str, ElmoModel]
    fingerprints: dict[str, str]
    longest: dict[str, int]
    tasks: dict[str, SavedTask[Any]] = field(default_factory=dict)
    index: TokenIndex | None = None
    index_model: str = ""
    static: StaticVectors | None = None
    _works: dict[tuple[str, ...], Work] = field(default_factory=dict)

    def model(self, name: str | None) -> tuple[str, ElmoModel]:
        """Return a model and its name; None is the first."""
        name = next(iter(self.models)) if name is None else name
        _check_known("model", name, self.models)
        return name, self.models[name]

    def task(self, name: str) -> SavedTask[Any]:
        """Return a task model."""
        _check_known("task", name, self.tasks)
        return self.tasks[name]

    def check(self, name: str, state: str, *, language_model: bool = False) -> None:
        """Reject what a model cannot do; the library's errors would reveal where it is stored."""
        model = self.models[name]
        if state == "warm" and model.warm is None:
            raise RequestRejected(
                422,
                f"The model '{name}' has no warm state. Use \"reset\", or create one with `elmo "
                "warm`.",
                param="state",
            )
        if language_model and (model.head is None or model.vocabulary is None):
            raise RequestRejected(
                422,
                f"The model '{name}' has no language-model head. Use another model of "
                "/v1/models, or train a head with `elmo finetune`.",
                param="model",
            )

    def layers(self, model: str, state: str) -> Work:
        """Lists of tokens -> their layers, (L + 1, T, 2D)."""
        elmo: Any = self.models[model]
        return self._work(
            *("layers", model, state),
            run=lambda items: elmo.compute(items, state),
            budget=elmo.batch_tokens,
            most=elmo.batch_sentences,
        )

    def scores(self, model: str, state: str) -> Work:
        """Lists of tokens -> their `SentenceScore`."""
        elmo = self.models[model]
        return self._work(
            *("score", model, state),
            run=lambda items: score(elmo, items, state),
            budget=_HEAD_TOKENS,
        )

    def substitutes(self, model: str, state: str) -> Work:
        """(tokens, positions, k) -> the `Substitutes` of each position."""
        elmo = self.models[model]
        return self._work(
            *("substitutes", model, state),
            run=lambda items: [substitutes_at(elmo, *item, state=state) for item in items],
            budget=_HEAD_TOKENS,
        )

    def predictions(self, task: str) -> Work:
        """Examples of a task -> predictions."""
        return self._work("task", task, run=self.tasks[task].predict, budget=_TASK_TOKENS)

    def _work(self, kind: str, name: str, state: str = "", **arguments: Any) -> Work:
        """Return the one work of this kind: only items of the same object run together."""
        if (kind, name, state) not in self._works:
            self._works[kind, name, state] = Work(f"{kind}:{name}", **arguments)
        return self._works[kind, name, state]


def _check_known(kind: str, name: str, known: Mapping[str, object]) -> None:
    if name not in known:
        raise RequestRejected(
            404,
            f"Unknown {kind} '{name:.80}'.{nearest(name, known)} Available {kind}s: "
            f"{', '.join(known) or 'none'}. To serve one, use: elmo serve --{kind} NAME=PATH",
            param="model" if kind == "model" else "name",
        )


def host(settings: Settings) -> Hosted:
    """Load everything that the settings name.

    Raises:
        ElmoError: A file is missing or invalid, or does not match the others.
    """
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    models = {
        name: load(path, device=settings.device, precision=settings.precision)
        for name, path in settings.models.items()
    }
    hosted = Hosted(
        models,
        {name: fingerprint(model) for name, model in models.items()},
        {name: _longest(model) for name, model in models.items()},
    )
    custom = {task.name: task for task in map(load_task, map(str, settings.task_files))}
    for name, folder in settings.tasks.items():
        hosted.tasks[name] = _shared(_task(folder, custom, settings.device), hosted)
    if settings.static is not None:
        hosted.static = load_static(settings.static)
    if settings.index is not None:
        hosted.index, hosted.index_model = _index(settings.index, models)
    return hosted


def _longest(model: ElmoModel) -> int:
    cnn = model.config.char_cnn
    characters = _LONGEST if cnn is None else cnn.max_characters_per_token
    words = () if model.vocabulary is None else model.vocabulary.words
    return max([characters, *map(len, words)])


def _task(folder: Path, custom: Mapping[str, Task[Any]], device: str) -> SavedTask[Any]:
    if not is_task_dir(folder):
        raise ConfigError(
            f"{folder} contains no trained task model. Train one with: elmo task NAME train "
            f"TRAIN DEV -o {folder}"
        )
    name = str(read_config(folder)["task"])
    if name not in custom and name not in TASKS:
        raise ConfigError(
            f"{folder} contains a model of the custom task '{name}'. Specify the file that defines "
            "it: --task-file my_task.py"
        )
    return load_saved(folder, custom[name] if name in custom else load_task(name), device=device)


def _shared(saved: SavedTask[Any], hosted: Hosted) -> SavedTask[Any]:
    """Let a task model use a model that is already served, if it was trained with it."""
    if saved.elmo is None:
        return saved
    state = saved.config.elmo.state
    own = fingerprint(saved.elmo, state)
    for model in hosted.models.values():
        if model.precision == saved.elmo.precision and fingerprint(model, state) == own:
            return replace(saved, elmo=model)
    return saved


def _index(directory: Path, models: Mapping[str, ElmoModel]) -> tuple[TokenIndex, str]:
    index = TokenIndex.open(directory)
    for name, model in models.items():
        try:
            index.check(model)
        except ConfigError:
            continue
        return index, name
    raise ConfigError(
        f"The index {directory} was built with a model that is not served (served: "
        f"{', '.join(models)}). Add that model with --model NAME=PATH, or rebuild the index with: "
        "elmo index"
    )
