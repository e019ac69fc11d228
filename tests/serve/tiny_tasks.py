"""Train the six tasks in a minute on tiny languages, for tests of the service.

Three of them learn their language perfectly; the others only need to give some prediction.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

from elmokit.embed.layer_cache import LayerCache
from elmokit.embed.loading import load
from elmokit.tasks.coref import Coref
from elmokit.tasks.data import load_data
from elmokit.tasks.loop import train
from elmokit.tasks.ner import Ner
from elmokit.tasks.snli import Snli
from elmokit.tasks.squad import Squad
from elmokit.tasks.srl import Srl
from elmokit.tasks.sst5 import Sst5
from elmokit.tasks.task import Task
from tests.tasks import conftest as ner
from tests.tasks import test_snli as snli
from tests.tasks import test_squad as squad
from tests.tasks import test_srl as srl
from tests.tasks import test_sst5 as sst5
from tests.tasks.coref import conftest as coref

Draw = random.Random


class Tiny(NamedTuple):
    """Settings, data writer and data size for training a task."""

    task: Task[Any]
    settings: Callable[..., Any]
    write: Callable[[Draw, int], str]
    examples: int
    changes: tuple[str, ...]


def _columns(draw: Draw, n: int) -> str:
    blocks = ["".join(f"{word} x {tag}\n" for word, tag in ner.sentence(draw)) for _ in range(n)]
    return "\n".join(blocks)


TINY = {
    "names": Tiny(Ner(), ner.settings, _columns, 60, ("train.epochs=3",)),
    "opinions": Tiny(
        Sst5(),
        sst5.settings,
        lambda draw, n: "".join(f"{sst5.tree(draw)}\n" for _ in range(n)),
        60,
        ("train.epochs=2", "elmo.place=both"),
    ),
    "follows": Tiny(
        Snli(),
        snli.settings,
        lambda draw, n: "".join(f"{snli.pair(draw)}\n" for _ in range(n)),
        200,
        ("train.epochs=6",),
    ),
    "answers": Tiny(
        Squad(),
        squad.settings,
        lambda draw, n: squad.squad(*(squad.paragraph(draw, i) for i in range(n))),
        40,
        ("train.epochs=3", "static.source=none", "static.dim=16"),
    ),
    "roles": Tiny(
        Srl(),
        srl.settings,
        lambda draw, n: "".join(f"{json.dumps(srl.sentence(draw))}\n" for _ in range(n)),
        60,
        ("train.epochs=3",),
    ),
    "chains": Tiny(
        Coref(),
        coref.settings,
        lambda draw, n: "".join(coref.story(draw, f"story{i}") for i in range(n)),
        30,
        ("train.epochs=6",),
    ),
}


def make_tasks(folder: Path) -> dict[str, Path]:
    """Train all six tasks on the bundled model; return their directories."""
    elmo = load(device="cpu")
    cache = LayerCache(folder / "cache")
    found = {}
    for name, tiny in TINY.items():
        files = []
        for part, n, seed in (("train", tiny.examples, 1), ("dev", 10, 2)):
            path = folder / f"{name}-{part}.txt"
            path.write_text(tiny.write(Draw(seed), n))
            files.append(str(path))
        config = tiny.settings(*tiny.changes)
        torch.manual_seed(0)
        data = load_data(tiny.task, config, *files, elmo=elmo, cache=cache)
        train(tiny.task, config, data, folder / name)
        found[name] = folder / name
    return found
