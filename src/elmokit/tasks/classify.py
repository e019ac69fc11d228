"""What tasks with one label per example share: `sst5.py` and `snli.py` stand on it."""

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
from elmokit.tasks.metrics.accuracy import accuracy_scores
from elmokit.tasks.task import Facts, Scores, Task, TaskModel, unknown_labels
from elmokit.text.lines import Line
from elmokit.text.sentences import split_sentences
from elmokit.text.tokenize import words

#: Of a longer text the first tokens are read: attention takes memory by the square of the length.
LONGEST = 512

# Brackets, quotes and slashes as treebanks write them, and as text and the biLM have them.
_WRITTEN = {
    "-LRB-": "(",
    "-RRB-": ")",
    "-LSB-": "[",
    "-RSB-": "]",
    "-LCB-": "{",
    "-RCB-": "}",
    "``": '"',
    "''": '"',
}


class Labeled(Example, Protocol):
    """An example with one label, or none if it is to be predicted."""

    @property
    def label(self) -> str | None:
        """The label, as in the file."""


L = TypeVar("L", bound=Labeled)


class Guess(NamedTuple):
    """A prediction.

    Attributes:
        label: The most probable label.
        probabilities: Of all labels.
    """

    label: str
    probabilities: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        rounded = {label: round(p, 4) for label, p in self.probabilities.items()}
        return {"label": self.label, "probabilities": rounded}


class Classifier(TaskModel[L]):
    """A network that gives each example a score for each label."""

    def __init__(self, labels: Sequence[str]) -> None:
        super().__init__()
        self.labels = list(labels)
        self._numbers = {label: number for number, label in enumerate(self.labels)}

    @abstractmethod
    def forward(self, batch: Batch[L]) -> Tensor:
        """Return the scores of all labels, (B, K)."""

    def loss(self, batch: Batch[L]) -> Tensor:
        """Return -log p(gold label), the mean over the examples."""
        gold = [self._numbers[str(example.label)] for example in batch.examples]
        return F.cross_entropy(self(batch), torch.tensor(gold, device=batch.device))

    def decode(self, batch: Batch[L]) -> list[Any]:
        """Return a `Guess` for each example."""
        rows = self(batch).softmax(dim=1).tolist()
        found = [dict(zip(self.labels, row, strict=True)) for row in rows]
        return [Guess(max(row, key=row.__getitem__), row) for row in found]


class Classification(Task[L]):
    """A task with one label per example; its score is accuracy."""

    metric = "accuracy"

    def learn(self, examples: Sequence[L]) -> Facts:
        """Collect the labels."""
        labels = sorted({str(example.label) for example in examples})
        if len(labels) < 2:
            raise DataError(
                f"All training examples have the label '{labels[0]}': nothing to learn."
                if labels
                else "There is no training example with a label: nothing to learn."
            )
        return {"labels": labels}

    def score(self, examples: Sequence[L], predictions: Sequence[Any]) -> Scores:
        """Return the accuracy."""
        gold = [example.label for example in examples]
        return accuracy_scores(gold, [guess.label for guess in predictions])

    def notes(self, examples: Sequence[L], facts: Facts) -> list[str]:
        """Count the examples whose labels the training data does not have."""
        found = Counter(str(example.label) for example in examples)
        return unknown_labels(found, facts["labels"], "examples with labels")


def text_tokens(text: str, line: Line) -> tuple[str, ...]:
    """Tokenize raw text of one or more sentences."""
    found = [word for start, end in split_sentences(text) for word in words(text[start:end])]
    return bounded(found, line)


def treebank_tokens(leaves: Sequence[str], line: Line) -> tuple[str, ...]:
    """Write the words of a treebank as text has them."""
    written = [_WRITTEN.get(leaf) or leaf.replace("\\/", "/") for leaf in leaves]
    return bounded([leaf.replace("\\*", "*") for leaf in written], line)


def bounded(tokens: Sequence[str], line: Line) -> tuple[str, ...]:
    """Refuse a text without tokens; cut one that is too long, and say so."""
    if not tokens:
        raise line.error("found an empty text, expected words. Fill it in, or leave the line out.")
    if len(tokens) > LONGEST:
        warn(
            f"{line.path}, line {line.number}: found {len(tokens):,} tokens; the first {LONGEST} "
            "are read. Perhaps line ends are missing."
        )
    return tuple(tokens[:LONGEST])
