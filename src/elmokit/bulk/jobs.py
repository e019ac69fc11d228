"""Who does the work on a corpus: this process, or several others (see workers.py).

The work is a row of jobs. What a job gives depends on the job alone and not on who does it, nor on
what was done before, so that the same bytes come out whoever works.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from elmokit.bulk.settings import EmbedSettings, run_manifest
from elmokit.config import BiLMConfig
from elmokit.embed.embedder import Embedder

Result = TypeVar("Result")
Done = TypeVar("Done", covariant=True)


class Job(Protocol[Done]):
    """A piece of work that can be sent to another process."""

    def run(self, model: Embedder[Any]) -> Done:
        """Do it."""


class ModelFacts(NamedTuple):
    """What the process that plans the work has to know of the model.

    Attributes:
        config: Its shape.
        manifest: All that decides the vectors, besides the text.
        engine: What computes.
    """

    config: BiLMConfig
    manifest: dict[str, Any]
    engine: str


@dataclass(frozen=True)
class Describe:
    """The job that every worker does first."""

    settings: EmbedSettings

    def run(self, model: Embedder[Any]) -> ModelFacts:
        """Tell what model this is."""
        return ModelFacts(model.config, run_manifest(model, self.settings), model.computes)


class Hands(Protocol):
    """Who does jobs.

    Attributes:
        facts: The model that they have.
        in_order: Whether a job begins only after the one before it has been done.
    """

    facts: ModelFacts
    in_order: bool

    def do(self, jobs: Iterable[Job[Result]]) -> Iterator[Result]:
        """Do jobs and give what comes of them, in any order; a job is asked for when it can start.

        After an error no more jobs begin, but those that have begun are ended and given out first.
        """

    def close(self) -> None:
        """Stop whatever is still being done."""


class OwnHands:
    """This process."""

    def __init__(self, model: Embedder[Any], settings: EmbedSettings) -> None:
        self.model = model
        self.facts = Describe(settings).run(model)
        self.in_order = True

    def do(self, jobs: Iterable[Job[Result]]) -> Iterator[Result]:
        """Do jobs one after the other."""
        for job in jobs:
            yield job.run(self.model)

    def close(self) -> None:
        """Do nothing: there is nobody else."""
