"""Checks that apply to all tasks."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elmokit.embed.layer_cache import LayerCache
from elmokit.embed.model import ElmoModel
from elmokit.tasks.batches import Dataset
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.data import Data, load_data
from elmokit.tasks.loop import TaskResult, train
from elmokit.tasks.saved import SavedTask, load_saved
from elmokit.tasks.task import Task, TaskModel


class Trained(NamedTuple):
    """A trained task model, reloaded and applied to its dev set."""

    result: TaskResult
    dev: dict[str, Any]
    saved: SavedTask[Any]
    examples: list[Any]
    predicted: list[Any]
    records: list[dict[str, Any]]


def write_examples(
    folder: Path,
    example: Callable[[random.Random], str],
    *,
    train: int,
    dev: int,
    ending: str = "txt",
) -> tuple[str, str]:
    """Write this many examples for training and early stopping; return the two files."""

    def write(name: str, n: int, seed: int) -> str:
        draw = random.Random(seed)
        path = folder / f"{name}.{ending}"
        path.write_text("".join(f"{example(draw)}\n" for _ in range(n)))
        return str(path)

    return write("train", train, 1), write("dev", dev, 2)


def learn(
    task: Task[Any],
    config: TaskConfig,
    files: tuple[str, str],
    elmo: ElmoModel,
    cache: LayerCache,
    run: Path,
) -> Trained:
    """Train, and check that the saved model has the reported score."""
    place = config.elmo.place
    given = None if place == "none" else elmo
    model = "tests/models/tiny"
    data = load_data(task, config, *files, files[1], elmo=given, model=model, cache=cache)
    result = train(task, config, data, run)
    assert result.dev is not None
    assert set(result.mixes) == ({"input", "output"} if place == "both" else set())
    saved = load_saved(run, task, device="cpu")
    examples = task.read(files[1])
    predicted = saved.predict(examples)
    assert task.score(examples, predicted) == result.dev
    records = [json.loads(line) for line in (run / "test.jsonl").read_text().splitlines()]
    return Trained(result, result.dev, saved, examples, predicted, records)


def with_both(
    task: Task[Any],
    config: TaskConfig,
    files: tuple[str, str],
    elmo: ElmoModel,
    cache: LayerCache,
) -> tuple[Data[Any], TaskModel[Any]]:
    """Return the data and an untrained model that uses ELMo at the input and the output."""
    assert config.elmo.place == "both"
    data = load_data(task, config, *files, elmo=elmo, cache=cache)
    assert data.bilm is not None
    torch.manual_seed(0)
    return data, type(task).network(config, data.label_info, data.words, data.bilm)


def check_gradients(loss: torch.Tensor, model: TaskModel[Any], elmo: ElmoModel) -> None:
    """Check that gradients reach all weights of the task and the mixes, but not the biLM."""
    loss.backward()  # type: ignore[no-untyped-call]
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
    assert set(model.elmo.mixes) == {"input", "output"}
    for mix in model.elmo.mixes.values():
        found: Any = mix
        assert found.w.grad.abs().sum() > 0
        assert found.gamma.grad.abs().sum() > 0
    assert all(p.grad is None and not p.requires_grad for p in elmo.bilm.parameters())


def check_batch_independence(model: TaskModel[Any], examples: Dataset[Any]) -> None:
    """Check that each example alone gives the same values as in a batch."""
    model.eval()
    together = model(examples.batch(range(len(examples))))
    assert torch.isfinite(together).all()
    for row in range(len(examples)):
        assert torch.allclose(model(examples.batch([row]))[0], together[row], atol=1e-5)
