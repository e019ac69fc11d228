"""Accuracy, and precision and recall per label."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from elmokit.tasks.metrics.spans import percent


def accuracy_scores(gold: Sequence[str | None], predicted: Sequence[str]) -> dict[str, Any]:
    """Score predicted labels against gold ones.

    Returns:
        Accuracy in percent, its counts, and precision and recall of each label.
    """
    wanted, given = Counter(map(str, gold)), Counter(predicted)
    right = Counter(guess for true, guess in zip(gold, predicted, strict=True) if true == guess)
    return {
        "accuracy": percent(right.total(), len(gold)),
        "right": right.total(),
        "examples": len(gold),
        "labels": {
            label: {
                "precision": percent(right[label], given[label]),
                "recall": percent(right[label], wanted[label]),
                "gold": wanted[label],
                "predicted": given[label],
            }
            for label in sorted(wanted | given)
        },
    }
