"""Compute one part of a corpus and write it into the work directory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from elmokit.bulk.files.part import MemoryPart, PartFile, SourceSentence, make_part
from elmokit.bulk.input import Sentence
from elmokit.bulk.settings import EmbedSettings
from elmokit.bulk.work import write_part
from elmokit.embed.embedder import Embedder, StateArrays
from elmokit.embed.tokenised import cut_tokens
from elmokit.embed.vectors import SentenceVectors

_STATE = "state."
_STATE_NAMES = ("cell", "hidden")


class PartDone(NamedTuple):
    """A part that stands in the work directory; with state="carry", the state at its end."""

    number: int
    carried: StateArrays | None


@dataclass(frozen=True)
class PartJob:
    """A part that is to be computed.

    Attributes:
        number: Its number, from 0.
        sentences: Its sentences.
        record: What is noted with it: how far the text was read.
        settings: Which vectors.
        out: The output file, beside which the work directory is.
        carried: With state="carry", the state that the part before it ended with.
    """

    number: int
    sentences: list[Sentence]
    record: dict[str, Any]
    settings: EmbedSettings
    out: Path
    carried: StateArrays | None = None

    def run(self, model: Embedder[Any]) -> PartDone:
        """Compute and write it."""
        part, cut, carried = compute_part(model, self.sentences, self.settings, self.carried)
        if carried is not None:
            state = {_STATE + name: values for name, values in carried.items()}
            part = MemoryPart({**part.arrays, **state})
        write_part(self.out, self.number, part, {"cut": cut, **self.record})
        return PartDone(self.number, carried)


def compute_part(
    model: Embedder[Any],
    sentences: list[Sentence],
    settings: EmbedSettings,
    carried: StateArrays | None = None,
) -> tuple[MemoryPart, int, StateArrays | None]:
    """Return a part, the number of its tokens that were cut, and the state at its end."""
    tokens = [sentence.tokens for sentence in sentences]
    # Some matrix products round a row differently at another place among the others, so what a
    # cache remembers would depend on what was read before: each part starts with an empty one.
    model.cache.clear()
    start = None if carried is None else model.state_from(carried)
    layers, end = model.compute(tokens, settings.state, rows=settings.rows, carried=start)
    part = make_part(
        [
            SourceSentence(SentenceVectors(s.tokens, s.spans, h), s.text, *s.place[:2])
            for s, h in zip(sentences, layers, strict=True)
        ],
        settings.layout(model.config),
    )
    after = None if end is None else model.state_arrays(end)
    return part, len(cut_tokens(model.config, tokens)), after


def state_after(part: PartFile) -> StateArrays:
    """Return the state that a part with state="carry" ended with."""
    return {name: part.read(_STATE + name) for name in _STATE_NAMES}
