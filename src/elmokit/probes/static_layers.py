"""Static vectors in the form of layers, so that probes measure both with the same code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.static import StaticVectors
from elmokit.embed.vectors import FloatArray


def static_layers(
    static: StaticVectors, sentences: Iterable[Sequence[str]]
) -> Iterator[FloatArray]:
    """Yield two layers per sentence, (2, T, D): the vectors of the words, and their mean."""
    for words in sentences:
        vectors, _ = static.table(words)
        # The sum is the mean up to its length, which does not affect cosines.
        yield np.stack([vectors, np.broadcast_to(vectors.sum(axis=0), vectors.shape)])


def static_choices(static: StaticVectors) -> dict[str, LayerChoice]:
    """Return the two layers by their names in reports."""
    names = (f"{static.name}, the word", f"{static.name}, mean of the sentence")
    return dict(zip(names, LayerChoice.parse_all("all", 2), strict=True))
