"""One vector per text, pooled from the vectors of its tokens, for `Embedder.encode`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, Protocol

import numpy as np

from elmokit.embed.cosine import unit
from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.vectors import FloatArray, SentenceVectors
from elmokit.errors import ConfigError, DataError, nearest
from elmokit.text.sentences import split_sentences
from elmokit.text.tokenize import words

POOLINGS = ("mean", "max", "first")


class Streams(Protocol):
    """A model that embeds a stream of sentences."""

    def stream(self, sentences: Iterable[Sequence[str]]) -> Iterator[SentenceVectors]:
        """Compute the vectors of sentences."""


def encode(
    model: Streams,
    texts: Iterable[str | Sequence[str]],
    choice: LayerChoice,
    pooling: str,
    *,
    dim: int,
    progress: bool = False,
) -> FloatArray:
    """Return one vector per text, shape (N, D); a text without tokens gives zeros.

    Args:
        model: The model.
        texts: Strings, which are split into sentences and tokens, or lists of tokens.
        choice: The vector of a token.
        pooling: "mean" or "max" over the tokens of a text, or its "first" token.
        dim: The dimensions of a layer, 2D.
        progress: Show a progress bar.
    """
    from tqdm import tqdm

    check_pooling(pooling)
    split = [_sentences(text, i) for i, text in enumerate(texts)]
    result: FloatArray = np.zeros((len(split), choice.dim(dim)), dtype=np.float32)
    vectors = model.stream(chain.from_iterable(split))
    for i, sentences in enumerate(tqdm(split, desc="encode", unit="text", disable=not progress)):
        layers = [next(vectors).layers for _ in sentences]
        tokens = [choice.apply(h) for h in layers if h.shape[1]]
        if tokens:
            result[i] = _pool(np.concatenate(tokens), pooling)
    for _ in vectors:  # the end of the stream warns of tokens that were truncated
        raise AssertionError("more vectors than sentences")
    return result


def similarity(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the cosine of every row of `a` with every row of `b`, shape (N, M)."""
    cosines: FloatArray = unit(np.atleast_2d(a)) @ unit(np.atleast_2d(b)).T
    return cosines


def check_pooling(pooling: str) -> None:
    """Raise an error for an unknown pooling."""
    if pooling not in POOLINGS:
        raise ConfigError(
            f"Invalid pooling {pooling!r}: expected {', '.join(POOLINGS)}."
            f"{nearest(str(pooling), POOLINGS)}"
        )


def check_texts(texts: Any) -> None:
    """Raise an error for anything that is not a list of texts."""
    shape = getattr(texts, "shape", None)
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        raise DataError(
            f"Expected a list of texts, got a {type(texts).__name__}. A text is a string or a list "
            "of tokens."
        )
    if shape is not None and len(shape) != 1:
        raise DataError(
            f"Expected one column of texts, got a {type(texts).__name__} of shape {tuple(shape)}. "
            "In a ColumnTransformer, use 'text' instead of ['text']."
        )


def _pool(tokens: FloatArray, pooling: str) -> FloatArray:
    pooled: FloatArray
    if pooling == "mean":
        pooled = tokens.mean(axis=0)
    elif pooling == "max":
        pooled = tokens.max(axis=0)
    else:
        pooled = tokens[0]
    return pooled


def _sentences(text: Any, index: int) -> list[list[str]]:
    if isinstance(text, str):
        return [words(text[start:end]) for start, end in split_sentences(text)]
    if isinstance(text, bytes) or not isinstance(text, Iterable):
        raise DataError(
            f"Text {index} is a {type(text).__name__} ({text!r:.40}); expected a string or a list "
            "of tokens."
        )
    tokens = list(text)
    for token in tokens:
        if not isinstance(token, str):
            raise DataError(
                f"Text {index} contains a {type(token).__name__} ({token!r:.40}); expected "
                "tokens, which are strings."
            )
    return [tokens]
