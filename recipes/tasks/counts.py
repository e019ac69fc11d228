"""Compute the counts of each test example that determine a run's score, from `test.jsonl`.

The score is a function of the summed counts, so a bootstrap sample is scored by adding rows.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import DataError
from elmokit.tasks.metrics.bootstrap import Metric, f1_metric, mean_metric
from elmokit.tasks.metrics.coref import MEASURES, Counts, without_singletons
from elmokit.tasks.metrics.spans import Span, spans_to_arguments, tags_to_spans
from elmokit.tasks.metrics.squad import answer_f1

Line = dict[str, Any]
Row = Sequence[float]

#: The main metric of each task.
METRIC = {
    "ner": "f1",
    "sst5": "accuracy",
    "snli": "accuracy",
    "squad": "f1",
    "srl": "f1",
    "coref": "conll",
}


def count_examples(task: str, path: Path, score: float) -> tuple[NDArray[np.float64], Metric]:
    """Return the counts of each test example, and the function that turns their sum into a score.

    Args:
        task: The task.
        path: The predictions of a run.
        score: The test score that the run reported. The counts must give the same score.
    """
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    computed = 0.0
    for count, metric in _COUNTS[task]:
        rows = np.array([count(line) for line in lines], dtype=np.float64)
        computed = metric(rows.sum(axis=0))
        if abs(computed - score) < 1e-6:
            return rows, metric
    raise DataError(
        f"The predictions in {path} give a score of {computed:.4f}, but the run reported "
        f"{score:.4f}. The file must contain the predictions of this run."
    )


def _spans(line: Line) -> Row:
    gold, predicted = set(tags_to_spans(line["gold"])), set(tags_to_spans(line["tags"]))
    return len(gold), len(predicted), len(gold & predicted)


def _label(gold_key: str) -> Callable[[Line], Row]:
    return lambda line: (line["label"] == line[gold_key], 1)


def _answer(line: Line) -> Row:
    return max(answer_f1(gold, line["answer"]) for gold in line["gold"]), 1


def _arguments(line: Line) -> Row:
    gold = predicted = correct = 0
    for frame in line["frames"]:
        expected, actual = (spans_to_arguments(_roles(frame[side])) for side in ("gold", "roles"))
        gold, predicted = gold + len(expected), predicted + len(actual)
        correct += len(expected & actual)
    return gold, predicted, correct


def _roles(roles: Iterable[Line]) -> list[Span]:
    return [Span(role["start"], role["end"], role["label"]) for role in roles]


def _clusters(*, singletons: bool) -> Callable[[Line], Row]:
    def count(line: Line) -> Row:
        clusterings = []
        for key in ("gold", "clusters"):
            mentions = [[(m["sentence"], m["start"], m["end"]) for m in c] for c in line[key]]
            clusterings.append(mentions if singletons else without_singletons(mentions))
        return [value for name in _CONLL for value in MEASURES[name](*clusterings)]

    return count


_CONLL = ("muc", "b3", "ceafe")


def _conll(sums: NDArray[np.float64]) -> float:
    f1 = [Counts(*counts).to_dict()["f1"] for counts in sums.reshape(len(_CONLL), -1).tolist()]
    return sum(f1) / len(f1)


# Coreference is scored with or without singleton clusters, depending on the training data.
_COUNTS: dict[str, list[tuple[Callable[[Line], Row], Metric]]] = {
    "ner": [(_spans, f1_metric)],
    "sst5": [(_label("gold"), mean_metric)],
    "snli": [(_label("gold_label"), mean_metric)],
    "squad": [(_answer, mean_metric)],
    "srl": [(_arguments, f1_metric)],
    "coref": [(_clusters(singletons=True), _conll), (_clusters(singletons=False), _conll)],
}
