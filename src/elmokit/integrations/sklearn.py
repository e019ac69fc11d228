"""A step of scikit-learn: texts in, one vector per text out.

    make_pipeline(ElmoVectorizer(layer="top"), LogisticRegression()).fit(texts, labels)

A string is split into sentences and tokens; a list of tokens is one sentence and is taken as it is.
The vectors of all tokens of a text are pooled into one. A text without tokens gives zeros.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.model import ElmoModel
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError, DataError, nearest, optional_imports
from elmokit.integrations.named import NamedModel
from elmokit.text.sentences import split_sentences
from elmokit.text.tokenize import words

with optional_imports("sklearn", "ElmoVectorizer"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin

POOLINGS = ("mean", "max", "first")


class ElmoVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """One vector per text, pooled from the vectors of its tokens.

    It learns nothing: `fit` only remembers which model it was. Pickles hold the name of the model
    and its fingerprint, not its weights; it is loaded when it is needed, once per process.

    Args:
        model: As for `elmokit.load`: a name, a path, `hf://user/model`; None is the bundled model.
        layer: The vector of a token: the number of a layer, "top", "average", "concat" (all layers
            side by side, L + 1 times as long) or "mix".
        pooling: "mean" or "max" over the tokens of a text, or its "first" token.
        mix: With layer "mix", the weights s, one per layer, used as they are.
        gamma: With layer "mix", the scale.
        precision: "exact" or "fast".
        device: "auto", "cpu", "cuda", ...
        batch_tokens: Tokens that run together at most; None leaves the model's own bound.

    Attributes:
        fingerprint_: Of the model that `fit` saw; another one is refused afterwards.
        n_features_out_: Numbers per text.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        layer: str | int = "average",
        pooling: str = "mean",
        mix: Sequence[float] | None = None,
        gamma: float = 1.0,
        precision: str = "exact",
        device: str = "auto",
        batch_tokens: int | None = None,
    ) -> None:
        self.model = model
        self.layer = layer
        self.pooling = pooling
        self.mix = mix
        self.gamma = gamma
        self.precision = precision
        self.device = device
        self.batch_tokens = batch_tokens

    def fit(self, X: Iterable[Any], y: Any = None) -> ElmoVectorizer:
        """Remember which model it is; nothing is learned from the texts.

        Args:
            X: The texts: strings, or lists of tokens.
            y: Not looked at.
        """
        _check_texts(X)
        named = self._named(None)
        with named.loaded() as elmo:
            self.n_features_out_ = self._choice(elmo).dim(elmo.config.output_dim)
        self.fingerprint_ = named.identify()
        return self

    def transform(self, X: Iterable[Any]) -> FloatArray:
        """Return the vectors of texts, shape (n, n_features_out_).

        Args:
            X: The texts: strings, or lists of tokens.
        """
        _check_texts(X)
        with self._named(getattr(self, "fingerprint_", None)).loaded() as elmo:
            choice = self._choice(elmo)
            rows = [self._pooled(text, choice) for text in _by_text(elmo, X)]
        dim = choice.dim(elmo.config.output_dim)
        vectors: FloatArray = np.zeros((len(rows), dim), np.float32)
        for row, pooled in zip(vectors, rows, strict=True):
            if pooled is not None:
                row[:] = pooled
        return vectors

    def _pooled(self, layers: Sequence[FloatArray], choice: LayerChoice) -> FloatArray | None:
        read = [choice.apply(h) for h in layers if h.shape[1]]
        if not read:
            return None
        tokens = np.concatenate(read[:1] if self.pooling == "first" else read)
        if self.pooling == "mean":
            pooled: FloatArray = tokens.mean(axis=0)
        elif self.pooling == "max":
            pooled = tokens.max(axis=0)
        else:
            pooled = tokens[0]
        return pooled

    def _named(self, fingerprint: str | None) -> NamedModel:
        return NamedModel(self.model, self.precision, self.device, self.batch_tokens, fingerprint)

    def _choice(self, elmo: ElmoModel) -> LayerChoice:
        if self.pooling not in POOLINGS:
            raise ConfigError(
                f"No pooling {self.pooling!r}.{nearest(self.pooling, POOLINGS)} "
                f"There are: {', '.join(POOLINGS)}."
            )
        return LayerChoice.parse(
            self.layer, elmo.config.n_layers, self.mix, self.gamma, allow_all=False
        )

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_

    def __sklearn_tags__(self) -> Any:
        """Say that texts are read, and that `fit` may be left out."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = []
        return tags


def _check_texts(X: Any) -> None:
    """Refuse what cannot be meant as one text after another."""
    shape = getattr(X, "shape", None)
    if isinstance(X, str | bytes) or not isinstance(X, Iterable):
        raise DataError(
            f"Expected a list of texts, found a {type(X).__name__}. A text is a string or a list "
            "of tokens."
        )
    if shape is not None and len(shape) != 1:
        raise DataError(
            f"Expected one column of texts, found a {type(X).__name__} of shape {tuple(shape)}. "
            "In a ColumnTransformer name the column by itself, 'text' and not ['text']."
        )


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
                f"Text {index} holds a {type(token).__name__} ({token!r:.40}); expected tokens, "
                "which are strings."
            )
    return [tokens]


def _by_text(elmo: ElmoModel, texts: Iterable[Any]) -> Iterator[list[FloatArray]]:
    """Read texts of any number together, and give the layers of each, sentence by sentence."""
    cut = [_sentences(text, index) for index, text in enumerate(texts)]
    vectors = elmo.stream(chain.from_iterable(cut))
    for sentences in cut:
        yield [next(vectors).layers for _ in sentences]
    for _ in vectors:  # nothing is left, but what was cut short is told at the end
        raise AssertionError("more vectors than sentences")
