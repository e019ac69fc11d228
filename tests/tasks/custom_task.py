"""A custom task for tests of the commands and the service."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import TINY_MODEL

# A task in a single file: does a sentence contain a digit?
OWN_TASK = """
import json
from dataclasses import dataclass

import torch
from torch import nn

from elmokit.tasks.config import ElmoConfig, StaticConfig, TaskConfig, TrainConfig
from elmokit.tasks.nn.elmo import ElmoMixes
from elmokit.tasks.task import Task, TaskModel
from elmokit.tasks.words import TokenEncoder, WordVectors
from elmokit.text.lines import read_lines


@dataclass(frozen=True)
class Item:
    tokens: tuple[str, ...]
    label: int | None = None

    @property
    def texts(self):
        return (self.tokens,)


@dataclass(frozen=True)
class Shape:
    hidden: int = 16


class Network(TaskModel):
    def __init__(self, config, label_info, words, bilm):
        super().__init__()
        self.encoder = TokenEncoder(WordVectors(words, trainable=True))
        self.elmo = ElmoMixes(config.elmo, bilm)
        dim = self.encoder.dim + self.elmo.input_dim
        hidden = config.model.hidden
        self.net = nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, 2))

    def forward(self, batch):
        tokens = batch.tokens()
        x = self.elmo.at_input(self.encoder(tokens), batch.layers())
        return self.net(x.masked_fill(~tokens.mask.unsqueeze(2), -1e9).amax(dim=1))

    def loss(self, batch):
        gold = torch.tensor([item.label for item in batch.examples], device=batch.device)
        return nn.functional.cross_entropy(self(batch), gold)

    def decode(self, batch):
        return self(batch).argmax(dim=1).tolist()


def read_text(lines):
    return (Item(tuple(line.text.split())) for line in lines)


class Digits(Task):
    name, metric, inputs, network = "digits", "accuracy", {"text": read_text}, Network
    presets = {
        "default": TaskConfig(
            Shape(), ElmoConfig(dropout=0.0), StaticConfig("none", dim=8),
            TrainConfig(epochs=8, learning_rate=0.02, batch_size=8),
        )
    }

    def read(self, path):
        rows = [line.text.split() for line in read_lines([path])]
        return [Item(tuple(row[1:]), int(row[0])) for row in rows]

    def collect_labels(self, examples):
        return {"labels": [0, 1]}

    def score(self, examples, predictions):
        right = sum(e.label == p for e, p in zip(examples, predictions))
        return {"accuracy": 100 * right / len(examples)}

    def format_prediction(self, example, prediction, *, as_json):
        return json.dumps({"label": prediction}) if as_json else str(prediction)
"""


def custom_task(folder: Path) -> tuple[Path, *tuple[str, ...]]:
    """Write the task and data for it.

    Returns:
        Its file; then the arguments that train it in `run`: train, TRAIN, DEV, options.
    """
    (task := folder / "digits.py").write_text(OWN_TASK)
    for name in ("train", "dev"):
        rows = [f"{i % 2} some words {'7' if i % 2 else 'here'} end" for i in range(40)]
        (folder / name).write_text("\n".join(rows) + "\n")
    arguments = ["train", folder / "train", folder / "dev", "-o", folder / "run"]
    arguments += ["--model", TINY_MODEL, "--cache-gb", 0, "--device", "cpu"]
    return task, *map(str, arguments)
