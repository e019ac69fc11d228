"""What a task is: a reader, labels, a model, a score. A new task is one file with a `Task`.

The frame does the rest: it computes ELMo's layers once, makes batches, trains, stops early, saves,
resumes, evaluates and predicts. `elmokit/tasks/ner.py` is the example to read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic

from torch import Tensor, nn

from elmokit.tasks.batches import Batch, E
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.nn.elmo import ElmoPlaces, LayerShape
from elmokit.tasks.words import Words
from elmokit.text.lines import Line

#: What a task learned from its training data besides weights, as JSON values: its labels.
LabelInfo = dict[str, Any]
#: The figures of an evaluation; the task's `metric` is one of them.
Scores = dict[str, Any]


def unknown_labels(found: Counter[str], known: Iterable[str], what: str) -> list[str]:
    """Say how many labels in some data a model does not know, for `Task.notes`.

    Args:
        found: The labels in the data.
        known: Those of the model.
        what: What has them, such as "entities of types".
    """
    unknown = Counter({label: n for label, n in found.items() if label not in known})
    if not unknown:
        return []
    listed = ", ".join(sorted(unknown))
    return [
        f"{unknown.total():,} {what} that are not in the training data ({listed}); they count as "
        "errors."
    ]


class TaskModel(nn.Module, ABC, Generic[E]):
    """A task's network.

    Attributes:
        elmo: Where ELMo enters; its penalty is added to the loss by the training loop.
    """

    elmo: ElmoPlaces

    @abstractmethod
    def loss(self, batch: Batch[E]) -> Tensor:
        """Return the mean loss of a batch of labeled examples."""

    @abstractmethod
    def decode(self, batch: Batch[E]) -> list[Any]:
        """Return a prediction for each example of a batch."""


class Task(ABC, Generic[E]):
    """A task; it holds no state.

    Attributes:
        name: What it is called.
        metric: The score on the dev set that decides which epoch is best; larger is better.
        presets: Whole configurations by name; the first is the default.
        inputs: The forms of input that `parse` reads; the first is the default.
    """

    name: ClassVar[str]
    metric: ClassVar[str]
    presets: ClassVar[Mapping[str, TaskConfig]]
    inputs: ClassVar[Sequence[str]]

    @abstractmethod
    def read(self, path: str) -> list[E]:
        """Read a file of labeled examples.

        Raises:
            DataError: What is wrong, with file, line and remedy.
        """

    @abstractmethod
    def parse(self, lines: Iterable[Line], form: str) -> Iterator[E]:
        """Read examples without labels, in one of the forms of `inputs`."""

    def training(self, examples: Sequence[E], config: TaskConfig) -> list[E]:
        """Make what is trained on of the training data, such as all phrases of its sentences."""
        return list(examples)

    @abstractmethod
    def learn(self, examples: Sequence[E]) -> LabelInfo:
        """Collect from the training data what the model must know: its labels."""

    @abstractmethod
    def model(
        self, config: TaskConfig, facts: LabelInfo, words: Words, elmo: LayerShape | None
    ) -> TaskModel[E]:
        """Make the network."""

    @abstractmethod
    def score(self, examples: Sequence[E], predictions: Sequence[Any]) -> Scores:
        """Compare predictions with labels, as the official script does."""

    @abstractmethod
    def show(self, example: E, prediction: Any, *, as_json: bool) -> str:
        """Return a prediction as text, in the format of the task or as a line of JSON."""

    def scored(self, examples: Sequence[E], config: TaskConfig) -> list[E]:
        """Leave out what a model with these settings is not asked for, and is not scored on."""
        return list(examples)

    def notes(self, examples: Sequence[E], facts: LabelInfo) -> list[str]:
        """Say what is odd in data that is evaluated on, such as labels that are not known."""
        return []
