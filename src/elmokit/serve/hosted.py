"""What is served: models, trained tasks, an index, static vectors; and the work they can do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from elmokit.errors import ConfigError, nearest
from elmokit.serve.batching import Work
from elmokit.serve.errors import RequestRejected
from elmokit.serve.settings import Settings

if TYPE_CHECKING:
    from elmokit.embed.model import ElmoModel
    from elmokit.embed.static import StaticVectors
    from elmokit.search.index import TokenIndex
    from elmokit.tasks.saved import SavedTask
    from elmokit.tasks.task import Task

# The full softmax costs several times as much per token as the biLM itself.
_HEAD_TOKENS = 512
_TASK_TOKENS = 2048
# Characters of a token for models that look words up.
_LONGEST = 1000


@dataclass
class Hosted:
    """The models and tasks by name, and what can be done with them.

    Attributes:
        models: The first is the default.
        prints: The fingerprint of each model.
        longest: Characters of a token that could make a difference to a model.
        tasks: Trained tasks.
        index: For neighbors, if there is one, made with the model `index_model`.
        static: Static vectors to compare with, if there are.
    """

    models: dict[str, ElmoModel]
    prints: dict[str, str] = field(default_factory=dict)
    longest: dict[str, int] = field(default_factory=dict)
    tasks: dict[str, SavedTask[Any]] = field(default_factory=dict)
    index: TokenIndex | None = None
    index_model: str = ""
    static: StaticVectors | None = None
    _works: dict[tuple[str, str, str], Work] = field(default_factory=dict)

    def model(self, name: str | None) -> tuple[str, ElmoModel]:
        """Return a model and its name; None is the first."""
        if name is None:
            name = next(iter(self.models))
        if name not in self.models:
            raise RequestRejected(
                404,
                f"Unknown model '{name:.80}'.{nearest(name, self.models)} Available models: "
                f"{', '.join(self.models)}.",
                param="model",
            )
        return name, self.models[name]

    def task(self, name: str) -> SavedTask[Any]:
        """Return a trained task."""
        if name not in self.tasks:
            there = (
                f"Available tasks: {', '.join(self.tasks)}."
                if self.tasks
                else "No tasks are available."
            )
            raise RequestRejected(
                404,
                f"Unknown task '{name:.80}'.{nearest(name, self.tasks)} {there} To serve one, use: "
                "elmo serve --task NAME=DIRECTORY",
                param="name",
            )
        return self.tasks[name]

    def check(self, name: str, state: str, *, language_model: bool = False) -> None:
        """Refuse what a model cannot do; the library's own errors would tell where it lies."""
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

    # ---------------------------------------------------------------------------------------- work

    def layers(self, name: str, state: str) -> Work:
        """Lists of tokens -> their layers, (L + 1, T, 2D)."""
        model = self.models[name]
        return self._work(
            ("layers", name, state),
            lambda items: model.compute(items, state)[0],  # type: ignore[arg-type]
            model.batch_tokens,
            model.batch_sentences,
        )

    def scores(self, name: str, state: str) -> Work:
        """Lists of tokens -> their `SentenceScore`."""
        from elmokit.embed import scoring

        model = self.models[name]
        return self._work(
            ("score", name, state), lambda items: scoring.score(model, items, state), _HEAD_TOKENS
        )

    def substitutes(self, name: str, state: str) -> Work:
        """(tokens, positions, k) -> the `Substitutes` of each position."""
        from elmokit.embed.substitutes import substitutes_at

        model = self.models[name]
        return self._work(
            ("substitutes", name, state),
            lambda items: [substitutes_at(model, *item, state=state) for item in items],
            _HEAD_TOKENS,
        )

    def predictions(self, name: str) -> Work:
        """Examples of a task -> predictions."""
        saved = self.tasks[name]
        return self._work(("task", name, ""), saved.predict, _TASK_TOKENS)

    def _work(self, key: tuple[str, str, str], run: Any, budget: int, most: int = 128) -> Work:
        if key not in self._works:
            self._works[key] = Work(":".join(part for part in key[:2]), run, budget, most)
        return self._works[key]


def host(settings: Settings) -> Hosted:
    """Load all that is asked for.

    Raises:
        ElmoError: Something is not there, or does not fit.
    """
    import torch

    from elmokit.embed.fingerprint import fingerprint
    from elmokit.embed.model import load

    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    models = {
        name: load(path, device=settings.device, precision=settings.precision)
        for name, path in settings.models.items()
    }
    found = Hosted(models, {name: fingerprint(model) for name, model in models.items()})
    found.longest = {name: _longest(model) for name, model in models.items()}
    if settings.tasks:
        own = _own_tasks(settings)
        for name, folder in settings.tasks.items():
            found.tasks[name] = _shared(_task(folder, own, settings.device), found)
    if settings.static is not None:
        from elmokit.embed.static import load_static

        found.static = load_static(settings.static)
    if settings.index is not None:
        found.index, found.index_model = _index(settings, models)
    return found


def _longest(model: ElmoModel) -> int:
    cnn = model.config.char_cnn
    read = _LONGEST if cnn is None else cnn.max_characters_per_token
    words = () if model.vocabulary is None else model.vocabulary.words
    return max([read, *map(len, words)])


def _own_tasks(settings: Settings) -> dict[str, Task[Any]]:
    from elmokit.tasks.registry import load_task

    tasks = [load_task(str(file)) for file in settings.task_files]
    return {task.name: task for task in tasks}


def _task(folder: Path, own: Mapping[str, Task[Any]], device: str) -> SavedTask[Any]:
    from elmokit.tasks.registry import TASKS, load_task
    from elmokit.tasks.saved import is_task_dir, load_saved, read_config

    if not is_task_dir(folder):
        raise ConfigError(
            f"{folder} contains no trained task model. Train one with: elmo task NAME train "
            f"TRAIN DEV -o {folder}"
        )
    name = str(read_config(folder)["task"])
    if name not in own and name not in TASKS:
        raise ConfigError(
            f"{folder} contains a model of the custom task '{name}'. Specify the file that defines "
            "it: --task-file my_task.py"
        )
    return load_saved(folder, own[name] if name in own else load_task(name), device=device)


def _shared(saved: SavedTask[Any], found: Hosted) -> SavedTask[Any]:
    """Let a task use a model that is served already, if it is the one it was trained with."""
    from elmokit.embed.fingerprint import fingerprint

    if saved.elmo is None:
        return saved
    state = saved.config.elmo.state
    own = fingerprint(saved.elmo, state)
    for model in found.models.values():
        if model.precision == saved.elmo.precision and fingerprint(model, state) == own:
            return replace(saved, elmo=model)
    return saved


def _index(settings: Settings, models: Mapping[str, ElmoModel]) -> tuple[TokenIndex, str]:
    from elmokit.search.index import TokenIndex

    assert settings.index is not None
    index = TokenIndex.open(settings.index)
    for name, model in models.items():
        try:
            index.check(model)
        except ConfigError:
            continue
        return index, name
    raise ConfigError(
        f"The index {settings.index} was built with a model that is not served (served: "
        f"{', '.join(models)}). Add that model with --model NAME=PATH, or rebuild the index with: "
        "elmo index"
    )
