"""Base classes for tasks with one label per example, such as those in `sst5.py` and `snli.py`."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from elmokit.errors import DataError, warn
from elmokit.tasks.batches import Batch, Example
from elmokit.tasks.metrics.spans import set_scores
from elmokit.tasks.task import LabelInfo, Scores, Task, TaskModel
from elmokit.text.lines import Line
from elmokit.text.sentences import split_sentences
from elmokit.text.tokenize import words

#: Longer texts are truncated, because the memory usage of attention is quadratic in the length.
MAX_TOKENS = 512


class LabeledExample(Example, Protocol):
    """An example with one label; the label is None if it is to be predicted."""

    @property
    def label(self) -> str | None:
        """The label as written in the file."""


L = TypeVar("L", bound=LabeledExample)


class LabelPrediction(NamedTuple):
    """A prediction.

    Attributes:
        label: The most probable label.
        probabilities: The probability of each label.
    """

    label: str
    probabilities: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dictionary."""
        rounded = {label: round(p, 4) for label, p in self.probabilities.items()}
        return {"label": self.label, "probabilities": rounded}


class Classifier(TaskModel[L]):
    """A network that scores all labels for each example."""

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__()
        self.labels = list(labels)
        self._label_ids = {label: i for i, label in enumerate(self.labels)}

    @abstractmethod
    def forward(self, batch: Batch[L]) -> Tensor:
        """Return the scores of all labels, (B, K)."""

    def loss(self, batch: Batch[L]) -> Tensor:
        """Return -log p(gold label), averaged over the examples."""
        gold = [self._label_ids[str(example.label)] for example in batch.examples]
        return F.cross_entropy(self(batch), torch.tensor(gold, device=batch.device))

    def decode(self, batch: Batch[L]) -> list[Any]:
        """Return a `LabelPrediction` for each example."""
        rows = self(batch).softmax(dim=1).tolist()
        distributions = [dict(zip(self.labels, row, strict=True)) for row in rows]
        return [LabelPrediction(max(p, key=p.__getitem__), p) for p in distributions]


class Classification(Task[L]):
    """A task with one label per example, scored by accuracy."""

    metric = "accuracy"

    def collect_labels(self, examples: Sequence[L]) -> LabelInfo:
        """Collect the labels."""
        labels = sorted(self.count_labels(examples))
        if len(labels) < 2:
            problem = f"only the label '{labels[0]}'" if labels else "no labels"
            raise DataError(f"The training data has {problem}; expected at least two labels.")
        return {"labels": labels}

    def score(self, examples: Sequence[L], predictions: Sequence[Any]) -> Scores:
        """Return the accuracy in percent, the two counts it is based on, and scores per label."""
        gold = [{str(example.label)} for example in examples]
        predicted = [{prediction.label} for prediction in predictions]
        overall, labels = set_scores(gold, predicted, str)
        counts = {"correct": overall["correct"], "examples": len(gold)}
        return {"accuracy": overall["recall"], **counts, "labels": labels}

    def count_labels(self, examples: Sequence[L]) -> Counter[str]:
        """Count the examples with each label."""
        return Counter(str(example.label) for example in examples)


def tokenize_text(text: str, line: Line) -> tuple[str, ...]:
    """Tokenize raw text of one or more sentences."""
    tokens = [word for sentence in split_sentences(text) for word in words(sentence)]
    return check_length(tokens, line)


def check_length(tokens: Sequence[str], line: Line) -> tuple[str, ...]:
    """Reject an empty text. If a text is too long, truncate it and warn."""
    if not tokens:
        raise line.error(
            "the text is empty: expected at least one word. Add a text or remove the line."
        )
    if len(tokens) > MAX_TOKENS:
        warn(
            f"{line.path}, line {line.number}: truncated a text of {len(tokens):,} tokens to "
            f"{MAX_TOKENS}. Check for missing line breaks."
        )
    return tuple(tokens[:MAX_TOKENS])
