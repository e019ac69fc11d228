"""Stories in which a pronoun refers to the person who was named last."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from elmokit.settings import with_settings
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.coref import Coref
from elmokit.tasks.documents import Document

TASK = Coref()
CPU = torch.device("cpu")
WOMEN, MEN = ["Ann", "Carla", "Mary"], ["Bob", "Dave", "Tom"]
SMALL = [
    "static.source=none",
    "static.dim=24",
    "static.trainable=true",
    "model.char_filters=8",
    "model.char_widths=3",
    "model.hidden=24",
    "model.scorer=40",
    "model.feature_dim=8",
    "model.width=4",
    "model.kept=0.6",
    "model.antecedents=20",
    "model.dropout=0.1",
    "model.word_dropout=0.1",
    "elmo.dropout=0.1",
    "train.learning_rate=0.005",
]


def settings(*changes: str) -> TaskConfig:
    return with_settings(TASK.presets["paper"], [*SMALL, *changes])


def story(draw: random.Random, name: str) -> str:
    """Write about a woman, a man, and a dog that is not mentioned again."""
    woman, man = draw.choice(WOMEN), draw.choice(MEN)
    rows = [[f"{woman} (1)", "met -", f"{man} (2)", ". -"]]
    for _ in range(draw.randrange(2, 5)):
        she = draw.choice([woman, "she"])
        he = draw.choice([man, "he"])
        first, second = draw.choice([(f"{she} (1)", f"{he} (2)"), (f"{he} (2)", f"{she} (1)")])
        rows.append([first, "saw -", second, ". -"])
    rows.insert(1, ["the (3", "old -", "dog 3)", "slept -", ". -"])
    body = "\n\n".join(
        "\n".join(f"{name} 0 {k} {row.split()[0]} - - - - - - - {row.split()[1]}" for k, row in r)
        for r in (enumerate(sentence) for sentence in rows)
    )
    return f"#begin document ({name}); part 000\n{body}\n\n#end document\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    folder = tmp_path_factory.mktemp("coref")
    for name, n, seed in (("train.conll", 40, 1), ("dev.conll", 10, 2)):
        draw = random.Random(seed)
        (folder / name).write_text("".join(story(draw, f"{name}{i}") for i in range(n)))
    return str(folder / "train.conll"), str(folder / "dev.conll")


def read(tmp_path: Path, text: str, name: str = "data.conll") -> list[Document]:
    path = tmp_path / name
    path.write_text(text)
    return TASK.read(str(path))
