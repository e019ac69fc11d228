"""One vector per text, pooled from the vectors of its tokens, for `Embedder.encode`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.tokenized import check_sentences, tokens_of
from elmokit.embed.vectors import FloatArray
from elmokit.errors import DataError, check_choice
from elmokit.text.sentences import split_sentences
from elmokit.text.tokenize import words

if TYPE_CHECKING:
    from elmokit.embed.embedder import Embedder

_POOLINGS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "mean": lambda tokens: tokens.mean(axis=0),
    "max": lambda tokens: tokens.max(axis=0),
    "first": lambda tokens: tokens[0],
}


def encode(
    model: Embedder,
    texts: Iterable[str | Sequence[str]],
    choice: LayerChoice,
    pooling: str,
    progress: bool = False,
) -> FloatArray:
    """Return one vector per text, shape (N, D); a text without tokens gives zeros.

    Args:
        model: The model.
        texts: Strings, which are split into sentences and tokens, or lists of tokens.
        choice: The vector of a token.
        pooling: "mean" or "max" over the tokens of a text, or its "first" token.
        progress: Show a progress bar.
    """
    from tqdm import tqdm

    check_texts(texts)
    check_pooling(pooling)
    split = [_sentences(text, i) for i, text in enumerate(texts)]
    result: FloatArray = np.zeros((len(split), choice.dim(model.config.output_dim)), np.float32)
    vectors = model.stream(chain.from_iterable(split))
    for i, sentences in enumerate(tqdm(split, desc="encode", unit="text", disable=not progress)):
        layers = [next(vectors).layers for _ in sentences]
        tokens = [choice.apply(h) for h in layers if h.shape[1]]
        if tokens:
            result[i] = _POOLINGS[pooling](np.concatenate(tokens))
    next(vectors, None)  # at its end, the stream warns about truncated tokens
    return result


def check_pooling(pooling: str) -> None:
    """Raise an error for an unknown pooling."""
    check_choice("pooling", pooling, _POOLINGS)


def check_texts(texts: Any) -> None:
    """Raise an error for anything that is not a list of texts."""
    check_sentences(texts, "text")
    shape = getattr(texts, "shape", (0,))
    if len(shape) != 1:
        raise DataError(
            f"Expected one column of texts, got a {type(texts).__name__} of shape {tuple(shape)}. "
            "In a ColumnTransformer, use 'text' instead of ['text']."
        )


def _sentences(text: Any, index: int) -> list[list[str]]:
    if isinstance(text, str):
        return [words(text[start:end]) for start, end in split_sentences(text)]
    return [tokens_of(text, index, "Text")[0]]
