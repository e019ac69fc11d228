"""The state that all routes share: models, task models, index, queue and status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.loading import load
from elmokit.embed.model import ElmoModel
from elmokit.embed.scoring import score
from elmokit.embed.static import load_static
from elmokit.embed.substitutes import substitutes_at
from elmokit.errors import ConfigError, suggest
from elmokit.search.index import TokenIndex
from elmokit.serve.batching import Batcher, Work
from elmokit.serve.errors import RequestRejected
from elmokit.serve.metrics import Metrics
from elmokit.serve.settings import Settings
from elmokit.tasks.registry import TASKS, load_task
from elmokit.tasks.saved import SavedTask, load_saved, read_config
from elmokit.tasks.task import Task

T = TypeVar("T")

# Maximum number of tokens per batch, for the LM head and for task models. Per token, the full
# softmax is several times as expensive as the biLM.
_HEAD_TOKENS = 512
_TASK_TOKENS = 2048
# Maximum number of characters per token for models without a character CNN.
_MAX_CHARACTERS = 1000


class Service:
    """The state that all routes share.

    Attributes:
        settings: The settings.
        limits: The limits that the settings specify.
        metrics: The Prometheus metrics.
        batcher: The job queue and the compute thread.
        shutdown: Whether the service rejects new requests.
        failure: The error that occurred while loading the models, if any.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.limits = settings.limits
        self.metrics = Metrics()
        self.failure: BaseException | None = None
        self._resources: Resources | None = None
        self.shutdown = False
        self.batcher = Batcher(self.limits.queue, self.limits.timeout, self.metrics)
        self.metrics.ready.set_function(lambda: self.status == "ok")

    def start(self, on_loaded: Callable[[], object]) -> None:
        """Load the models and call `on_loaded`, both on the compute thread."""

        def load() -> None:
            try:
                self._resources = Resources(self.settings)
                models = self._resources.models.values()
                self.metrics.cache_hits.set_function(lambda: sum(m.cache.hits for m in models))
                self.metrics.cache_misses.set_function(lambda: sum(m.cache.misses for m in models))
            except BaseException as error:
                self.failure = error
            on_loaded()

        self.batcher.start(load)

    def close(self) -> None:
        """Finish pending work and stop the compute thread."""
        self.shutdown = True
        self.batcher.close(self.limits.timeout)

    @property
    def status(self) -> Literal["loading", "ok", "stopping"]:
        """The status. Requests for models are rejected unless the status is "ok"."""
        if self.shutdown:
            return "stopping"
        return "loading" if self._resources is None else "ok"

    @property
    def resources(self) -> Resources:
        """The models, task models, index and static vectors.

        Raises:
            RequestRejected: 503 while they are being loaded.
        """
        if self._resources is None:
            raise RequestRejected(
                "The models are still being loaded; see /readyz.", 503, retry_after=2
            )
        return self._resources


class Resources:
    """The models, task models, index and static vectors that the settings specify.

    Attributes:
        models: The models by name; the first is the default.
        fingerprints: The fingerprint of each model.
        max_characters: For each model, the number of characters to which tokens are truncated.
        tasks: The task models by name.
        static: Static vectors for comparison, if any.
        index: The index for nearest-neighbor search, if any.
        index_model: The name of the model that the index was built with.

    Raises:
        ElmoError: A file is missing or invalid, or does not match the others.
    """

    index: TokenIndex | None = None
    index_model = ""

    def __init__(self, settings: Settings) -> None:
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        self.models = {
            name: load(path, None, settings.device, settings.precision, "torch")
            for name, path in settings.models.items()
        }
        self.fingerprints = {name: fingerprint(model) for name, model in self.models.items()}
        self.max_characters = {name: _max_characters(elmo) for name, elmo in self.models.items()}
        custom = {task.name: task for task in map(load_task, map(str, settings.task_files))}
        self.tasks = {
            name: self._share_model(_load_task(folder, custom, settings.device))
            for name, folder in settings.tasks.items()
        }
        self.static = None if settings.static is None else load_static(settings.static)
        if settings.index is not None:
            self._open_index(settings.index)

    def model(self, name: str | None) -> tuple[str, ElmoModel]:
        """Return the name of a model and the model. None selects the default model."""
        name = next(iter(self.models)) if name is None else name
        return name, _look_up("model", name, self.models)

    def task(self, name: str) -> SavedTask[Any]:
        """Return a task model."""
        return _look_up("task", name, self.tasks)

    def check_supported(self, name: str, state: str, *, language_model: bool = False) -> None:
        """Reject a request that a model does not support.

        The library would also raise an error, but with a message that contains the model's path.
        """
        model = self.models[name]
        if state == "warm" and model.warm is None:
            raise RequestRejected(
                f"The model '{name}' has no warm state. Use state 'reset', or create a warm state "
                "with `elmo warm`.",
                param="state",
            )
        if language_model and (model.head is None or model.vocabulary is None):
            raise RequestRejected(
                f"The model '{name}' has no LM head. Use another model from /v1/models, or train a "
                "head with `elmo finetune`.",
                param="model",
            )

    @cache  # noqa: B019 (the resources exist as long as the process)
    def work(self, kind: str, name: str = "", state: str = "") -> Work:
        """Return the `Work` object for a computation with a model or a task model.

        The kind determines what is computed for each item:

        layers        (tokens, reduce) -> reduce(layers), where the layers are (L + 1, T, 2D)
        score         tokens -> `SentenceScore`
        substitutes   (tokens, positions, k) -> the `Substitutes` at each position
        task          example -> prediction

        For other kinds, each item is a function without arguments, which is called.
        """
        if not name:
            return Work(kind, lambda functions: [function() for function in functions], budget=0)
        if kind == "task":
            return Work(f"task:{name}", self.tasks[name].predict, _TASK_TOKENS)
        elmo: Any = self.models[name]

        def compute_reduced_layers(items: list[Any]) -> list[Any]:
            layers = elmo.compute([tokens for tokens, _ in items], state)
            return [reduce(h) for (_, reduce), h in zip(items, layers, strict=True)]

        run = {
            "layers": compute_reduced_layers,
            "score": lambda items: score(elmo, items, state),
            "substitutes": lambda items: [substitutes_at(elmo, *i, state=state) for i in items],
        }[kind]
        if kind == "layers":
            return Work(f"layers:{name}", run, elmo.batch_tokens, elmo.batch_sentences)
        return Work(f"{kind}:{name}", run, _HEAD_TOKENS)

    def _share_model(self, saved: SavedTask[Any]) -> SavedTask[Any]:
        """Replace the biLM of a task model with an identical one that is already loaded, if any."""
        if saved.elmo is None:
            return saved
        state = saved.config.elmo.state
        expected = fingerprint(saved.elmo, state)
        for model in self.models.values():
            if model.precision == saved.elmo.precision and fingerprint(model, state) == expected:
                return replace(saved, elmo=model)
        return saved

    def _open_index(self, directory: Path) -> None:
        """Open an index and find the model that it was built with."""
        index = TokenIndex.open(directory)
        for name, model in self.models.items():
            with suppress(ConfigError):
                index.check_model(model)
                self.index, self.index_model = index, name
                # Responses must not reveal paths.
                inputs = [Path(path).name for path in index.meta.inputs]
                index.meta = replace(index.meta, inputs=inputs)
                return
        raise ConfigError(
            f"The index {directory} was built with a model that is not loaded (loaded models: "
            f"{', '.join(self.models)}). Add that model with --model NAME=PATH, or rebuild the "
            "index with `elmo index`."
        )


def _look_up(kind: str, name: str, entries: Mapping[str, T]) -> T:
    if name in entries:
        return entries[name]
    raise RequestRejected(
        f"Unknown {kind} '{name:.80}'.{suggest(name, entries)} Available {kind}s: "
        f"{', '.join(entries) or 'none'}. To add one, start the service "
        f"with: elmo serve --{kind} NAME=PATH",
        404,
        param="model" if kind == "model" else "name",
    )


def _max_characters(model: ElmoModel) -> int:
    cnn = model.config.char_cnn
    characters = _MAX_CHARACTERS if cnn is None else cnn.max_characters_per_token
    words = () if model.vocabulary is None else model.vocabulary.words
    return max([characters, *map(len, words)])


def _load_task(folder: Path, custom: Mapping[str, Task[Any]], device: str) -> SavedTask[Any]:
    name = str(read_config(folder)["task"])
    if name not in custom and name not in TASKS:
        raise ConfigError(
            f"{folder} contains a model of the custom task '{name}'. Specify the file that defines "
            "this task: --task-file my_task.py"
        )
    return load_saved(folder, custom[name] if name in custom else load_task(name), device=device)
