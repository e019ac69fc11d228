"""Runs as `recipes/tasks` leaves them, made up for the tests of its tables."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from elmokit.tasks.classify import Guess
from elmokit.tasks.coref import Resolved
from elmokit.tasks.documents import Document, Mention
from elmokit.tasks.metrics.spans import Span
from elmokit.tasks.ner import Sentence
from elmokit.tasks.propbank import Frame
from elmokit.tasks.propbank import Sentence as Clause
from elmokit.tasks.registry import load_task
from elmokit.tasks.snli import Pair
from elmokit.tasks.squad import Answer
from elmokit.tasks.sst5 import Review

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "tasks"
NAMES = (
    "runs",
    "counts",
    "finished",
    "earlier",
    "results",
    "gains",
    "published",
    "figures",
    "finetune",
    "tables",
    "prepare",
    "glove",
    "beside",
    "pool",
    "run",
)
TABLES = ("table1", "table2", "table3", "models", "finetune", "static", "figure1", "figure2")
MACHINE = {"date": "2026-01-02", "device": "A GPU", "cores": 4}


def guess(label: str) -> Guess:
    return Guess(label, {label: 1.0})


def span(start: int, end: int, kind: str) -> Span:
    return Span(start, end, kind)


DOCUMENT = Document(
    (("Ann", "saw", "her", "dog"), ("She", "called", "it")),
    ((Mention(0, 1), Mention(2, 3), Mention(4, 5)), (Mention(2, 4), Mention(6, 7))),
    "d",
)
FOUND = [[Mention(0, 1), Mention(4, 5)], [Mention(2, 4), Mention(6, 7), Mention(2, 3)]]
# Of each task, examples and predictions of which some are wrong.
EXAMPLES: dict[str, tuple[list[Any], list[Any]]] = {
    "ner": (
        [
            Sentence(("a", "b", "c"), ("I-X", "I-X", "O")),
            Sentence(("d",), ("B-Y",)),
            Sentence(("e", "f"), ("B-Y", "B-X")),
        ],
        [["B-X", "I-X", "O"], ["O"], ["B-Y", "I-Y"]],
    ),
    "sst5": ([Review(("a",), "1"), Review(("b",), "4")], [guess("1"), guess("3")]),
    "snli": (
        [Pair(("a",), ("b",), "neutral"), Pair(("c",), ("d",), "entailment")],
        [guess("neutral"), guess("neutral")],
    ),
    "squad": (
        [
            SimpleNamespace(id="1", text="who?", answers=("the old King", "king")),
            SimpleNamespace(id="2", text="when?", answers=("in 1066",)),
        ],
        [Answer("old king", 0, 8, 1.0), Answer("1066 or so", 0, 10, 1.0)],
    ),
    "srl": (
        [
            Clause(
                ("Ann", "gave", "it", "up"),
                frames=(Frame(1, (span(0, 1, "A0"), span(1, 2, "V"), span(2, 3, "A1"))),),
            ),
            Clause(("Go",), frames=(Frame(0, (span(0, 1, "V"),)),)),
        ],
        [
            [Frame(1, (span(0, 1, "A0"), span(1, 2, "V"), span(2, 4, "A1")))],
            [Frame(0, (span(0, 1, "V"),))],
        ],
    ),
    "coref": ([DOCUMENT, DOCUMENT], [Resolved(FOUND, False), Resolved(FOUND[:1], False)]),
}


def write_run(
    folder: Path, task: str, predictions: list[Any], metric: str, **results: Any
) -> float:
    """Leave what a run leaves."""
    examples, _ = EXAMPLES[task]
    shown = load_task(task)
    scores = shown.score(examples, predictions)
    folder.mkdir(parents=True)
    lines = [shown.show(e, p, as_json=True) for e, p in zip(examples, predictions, strict=True)]
    (folder / "test.jsonl").write_text("".join(f"{line}\n" for line in lines))
    mixes = {"input": {"s": [0.2, 0.5, 0.3], "gamma": 1.5}}
    values = {"epochs": 4, "best_epoch": 2, "seconds": 9.0, "mixes": mixes, **results}
    values |= {"dev": scores, "test": scores}
    config = {"results": values, "config": {"train": {"epochs": 10}}}
    (folder / "config.json").write_text(json.dumps(config))
    curve = [{"dev": {metric: score}} for score in (10.0, 20.0, 15.0, 18.0)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in curve))
    return float(scores[metric])
