"""Accuracy, and precision and recall per label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elmokit.tasks.metrics.spans import set_figures


def accuracy_scores(gold: Sequence[str | None], predicted: Sequence[str]) -> dict[str, Any]:
    """Score predicted labels against gold ones.

    Returns:
        Accuracy in percent, its counts, and the scores of each label.
    """
    overall, labels = set_figures([{str(g)} for g in gold], [{p} for p in predicted], str)
    return {
        "accuracy": overall["recall"],
        "right": overall["right"],
        "examples": len(gold),
        "labels": labels,
    }
