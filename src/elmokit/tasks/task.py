"""The base classes of tasks. A custom task is a single file that defines a subclass of `Task`.

A task reads its data, collects labels, creates a model and computes scores. The framework computes
ELMo's layers once, creates batches, trains with early stopping, saves and resumes runs, evaluates
and predicts. See `elmokit/tasks/ner.py` for an example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic

from torch import Tensor, nn

from elmokit.tasks.batches import Batch, E
from elmokit.tasks.config import TaskConfig
from elmokit.tasks.nn.elmo import ElmoMixes
from elmokit.text.lines import Line

#: Reads examples without labels.
Reader = Callable[[Iterable[Line]], Iterator[E]]
#: Labels and other information from the training data, as JSON values.
LabelInfo = dict[str, Any]
#: The results of an evaluation; the task's `metric` is one of them.
Scores = dict[str, Any]


class TaskModel(nn.Module, ABC, Generic[E]):
    """The network of a task.

    Attributes:
        elmo: The module that adds ELMo to the network. The training loop adds its penalty to the
            loss.
    """

    elmo: ElmoMixes

    @abstractmethod
    def loss(self, batch: Batch[E]) -> Tensor:
        """Return the mean loss of a batch of labeled examples."""

    @abstractmethod
    def decode(self, batch: Batch[E]) -> list[Any]:
        """Return a prediction for each example in a batch."""


class Task(ABC, Generic[E]):
    """A task: reads data, creates the network and scores predictions. Tasks are stateless.

    Attributes:
        name: Name of the task.
        metric: The dev score that selects the best epoch. Higher is better.
        presets: Complete settings, keyed by name. The first preset is the default.
        inputs: Readers of unlabeled examples, keyed by input format. The first format is the
            default.
        network: The class of the network. Its arguments are the settings (`TaskConfig`), the result
            of `collect_labels`, the words (`WordTable`), and the biLM (`BilmInfo`, or None to train
            without ELMo).
    """

    name: ClassVar[str]
    metric: ClassVar[str]
    presets: ClassVar[Mapping[str, TaskConfig]]
    inputs: ClassVar[Mapping[str, Reader[Any]]]
    network: ClassVar[Callable[..., TaskModel[Any]]]

    @abstractmethod
    def read(self, path: str) -> list[E]:
        """Read a file of labeled examples.

        Raises:
            DataError: The file is invalid; the message names the file and line.
        """

    def parse(self, lines: Iterable[Line], input_format: str) -> Iterator[E]:
        """Read unlabeled examples in one of the formats of `inputs`."""
        return self.inputs[input_format](lines)

    def training(self, examples: Sequence[E], config: TaskConfig) -> list[E]:
        """Convert the training data to training examples, such as the phrases of each sentence."""
        return list(examples)

    @abstractmethod
    def collect_labels(self, examples: Sequence[E]) -> LabelInfo:
        """Collect the labels of the training data."""

    @abstractmethod
    def score(self, examples: Sequence[E], predictions: Sequence[Any]) -> Scores:
        """Compute the scores of predictions, as the official script of the task does."""

    @abstractmethod
    def format_prediction(self, example: E, prediction: Any, *, as_json: bool) -> str:
        """Return a prediction as text, in the task's own format or as a line of JSON."""

    def scored(self, examples: Sequence[E], config: TaskConfig) -> list[E]:
        """Return the examples on which a model with these settings is scored."""
        return list(examples)

    def count_labels(self, examples: Sequence[E]) -> Counter[str]:
        """Count the labels, to warn about labels that do not occur in the training data."""
        return Counter()
