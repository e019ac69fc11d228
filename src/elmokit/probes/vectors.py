"""Vectors of words in sentences, from the layers of a model or from static vectors.

Static vectors are arranged like layers, so that probes can process both with the same code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import numpy as np

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.model import ElmoModel
from elmokit.embed.static import StaticVectors
from elmokit.embed.vectors import FloatArray
from elmokit.progress import ProgressFn

#: The layers of each sentence, (R, T, D); R = L + 1 for a model.
SentenceLayers = Iterator[FloatArray]


def model_layers(
    model: ElmoModel,
    sentences: Sequence[Sequence[str]],
    state: Literal["reset", "warm"],
    progress: ProgressFn,
) -> SentenceLayers:
    """Yield the layers of each sentence, and report the number of processed tokens."""
    total, n_done = sum(map(len, sentences)), 0
    for vectors in model.stream(sentences, state):
        yield vectors.layers
        n_done += len(vectors)
        progress("tokens", n_done, total)


def static_layers(static: StaticVectors, sentences: Iterable[Sequence[str]]) -> SentenceLayers:
    """Yield two layers per sentence, (2, T, D): the word vectors, and T copies of their sum."""
    for words in sentences:
        vectors, _ = static.look_up(words)
        # The sum has the same direction as the mean, and therefore the same cosines.
        yield np.stack([vectors, np.broadcast_to(vectors.sum(axis=0), vectors.shape)])


def static_choices(static: StaticVectors) -> dict[str, LayerChoice]:
    """Return the layer choices for `static_layers`, keyed by their names in reports."""
    names = (f"{static.name}, the word", f"{static.name}, mean of the sentence")
    return dict(zip(names, LayerChoice.parse_all("all", 2), strict=True))


def span_vectors(layers: Iterable[FloatArray], spans: Sequence[tuple[int, int, int]]) -> FloatArray:
    """Return the mean vector of each span of words, shape (R, n, D).

    Args:
        layers: The layers of each sentence.
        spans: The (sentence, start, end) of each span, that is, words start, ..., end - 1.
    """
    by_sentence = defaultdict(list)
    for i, (sentence, start, end) in enumerate(spans):
        by_sentence[sentence].append((i, start, end))
    means = {
        i: vectors[:, start:end].mean(axis=1)
        for sentence, vectors in enumerate(layers)
        for i, start, end in by_sentence[sentence]
    }
    return np.stack([means[i] for i in range(len(spans))], axis=1)
