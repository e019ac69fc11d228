"""The vectors of a sentence as NumPy arrays, and cosine similarities between vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.layer_choice import LayerChoice, mix_weights
from elmokit.errors import DataError, suggest
from elmokit.progress import plural

FloatArray = NDArray[np.float32]

_MAX_SHOWN = 60  # number of tokens to show in a notebook


@dataclass(frozen=True, eq=False)
class SentenceVectors:
    """The layers of all tokens of a sentence: R_k in the paper.

    Attributes:
        tokens: The tokens of the sentence.
        offsets: (start, end) of each token in the input string, as Python string indices; None if
            the input was a list of tokens.
        layers: h_{k,j}, shape (L + 1, T, 2D). Layer 0 depends only on the word, and the other
            layers also depend on its context.
    """

    tokens: list[str]
    offsets: list[tuple[int, int]] | None
    layers: FloatArray

    @property
    def top(self) -> FloatArray:
        """The last layer, shape (T, 2D)."""
        top: FloatArray = self.layers[-1]
        return top

    @property
    def average(self) -> FloatArray:
        """The mean of all layers, shape (T, 2D)."""
        average: FloatArray = self.layers.mean(axis=0)
        return average

    def mix(
        self,
        s: Sequence[float] | None = None,
        gamma: float = 1.0,
        *,
        w: Sequence[float] | None = None,
    ) -> FloatArray:
        """Mix the layers: gamma * sum_j s_j h_{k,j}.

        Args:
            s: The weights, one per layer, which are not normalized.
            gamma: The scale.
            w: The weights before the softmax, as stored in a task model, instead of `s`.

        Returns:
            ELMo_k, shape (T, 2D). Without `s` and `w`, all layers have the same weight.
        """
        weights = mix_weights(len(self.layers), s, gamma, w)
        mixed: FloatArray = np.tensordot(weights, self.layers, axes=1)
        return mixed

    def select(
        self, layer: str | int, *, mix: Sequence[float] | None = None, gamma: float = 1.0
    ) -> FloatArray:
        """Return the vectors of a layer choice; see `elmokit.embed.layer_choice`.

        Args:
            layer: A layer number, "top", "average", "concat", "mix" or "all".
            mix: With "mix", the weights s, one per layer, which are not normalized.
            gamma: With "mix", the scale.

        Returns:
            Shape (T, 2D); (T, (L + 1) 2D) for "concat"; (L + 1, T, 2D) for "all".
        """
        return LayerChoice.parse(layer, len(self.layers), mix, gamma).apply(self.layers)

    def word(self, word: str, occurrence: int = 0) -> FloatArray:
        """Return the vectors of one word of the sentence, shape (L + 1, 2D).

        Args:
            word: A token of the sentence, exactly as in `tokens`.
            occurrence: Which occurrence of the word to use, counted from 0.
        """
        positions = [k for k, token in enumerate(self.tokens) if token == word]
        if not positions:
            raise DataError(
                f"'{word}' is not a token of this sentence.{suggest(word, self.tokens)} The tokens "
                f"of the sentence are: {' '.join(self.tokens)}"
            )
        try:
            vectors: FloatArray = self.layers[:, positions[occurrence]]
        except IndexError:
            raise DataError(
                f"The word '{word}' occurs {plural(len(positions), 'time')} in this sentence; "
                f"occurrence {occurrence} does not exist. Occurrences are numbered from 0."
            ) from None
        return vectors

    def __len__(self) -> int:
        return len(self.tokens)

    def __repr__(self) -> str:
        shown = " ".join(self.tokens[:12]) + (" ..." if len(self.tokens) > 12 else "")
        shown = shown.encode("utf-8", "backslashreplace").decode()  # lone surrogates
        return f"<SentenceVectors {list(self.layers.shape)}: {shown}>"

    def _repr_html_(self) -> str:
        """Show the tokens in a notebook, each with the tokens of the sentence nearest to it."""
        from elmokit import html

        shown = self.top[:_MAX_SHOWN]
        cosines = similarity(shown, shown)
        np.fill_diagonal(cosines, -1)
        titles = []
        for row in cosines:
            nearest = [k for k in np.argsort(-row)[:3].tolist() if row[k] > -1]
            titles.append("\n".join(f"{self.tokens[k]} {row[k]:.2f}" for k in nearest))
        layers, n, dim = self.layers.shape
        note = f"{plural(n, 'token')}, {layers} layers of {dim} dimensions. Darker tokens are "
        note += "closer to another token of the sentence (top layer); hover to see which."
        largest = cosines.max(axis=1, initial=0.0).tolist()
        return html.chips(self.tokens, largest, titles, limit=_MAX_SHOWN) + html.caption(note)


def padded(vectors: Sequence[FloatArray]) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Combine the vectors of sentences into one padded array, as AllenNLP and bilm-tf do.

    Args:
        vectors: An array for each sentence: `.top`, `.average` or `.mix(...)` of shape (T, 2D), or
            `.layers` of shape (L + 1, T, 2D).

    Returns:
        The vectors, padded with zeros to the largest T, shape (B, T, 2D) or (B, L + 1, T, 2D), and
        the mask, which is True for tokens, shape (B, T).
    """
    if not len(vectors):
        raise DataError("Expected the vectors of at least one sentence, got an empty list.")
    lengths = np.array([sentence.shape[-2] for sentence in vectors])
    *front, _, dim = vectors[0].shape
    batch = np.zeros((len(vectors), *front, lengths.max(), dim), dtype=np.float32)
    for row, sentence in zip(batch, vectors, strict=True):
        row[..., : sentence.shape[-2], :] = sentence
    return batch, np.arange(lengths.max()) < lengths[:, np.newaxis]


def normalize(vectors: FloatArray) -> FloatArray:
    """Scale the vectors in an array (..., D) to length 1. Zero vectors remain zero."""
    lengths: FloatArray = np.linalg.norm(vectors, axis=-1, keepdims=True)
    lengths[lengths == 0] = 1
    scaled: FloatArray = vectors / lengths
    return scaled


def similarity(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the cosine similarity of each row of `a` to each row of `b`, shape (N, M)."""
    products: FloatArray = normalize(np.atleast_2d(a)) @ normalize(np.atleast_2d(b)).T
    return products


def cosines(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the cosine similarity of corresponding rows of `a` and `b`, shape (n,)."""
    products: FloatArray = np.einsum("nd,nd->n", normalize(a), normalize(b))
    return products
