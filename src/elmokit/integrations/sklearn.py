"""A scikit-learn transformer that converts texts to vectors.

    make_pipeline(ElmoVectorizer(layer="top"), LogisticRegression()).fit(texts, labels)

A string is split into sentences and tokens. A list of tokens is treated as one sentence. The
vectors of all tokens of a text are pooled. The vector of a text without tokens is zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from elmokit.embed.embedder import POOLINGS
from elmokit.embed.tokenized import check_texts
from elmokit.embed.vectors import FloatArray
from elmokit.errors import check_choice, optional_imports
from elmokit.integrations.named import NamedModel

with optional_imports("sklearn", "ElmoVectorizer"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin


class ElmoVectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Converts each text to one vector, pooled from the vectors of its tokens.

    `fit` only stores the fingerprint of the model. Pickles contain the name and fingerprint of the
    model, but not its weights. The model is loaded on first use, once per process.

    Args:
        model: A model for `elmokit.load`: a name, a path or `hf://user/model`. Default: the bundled
            model.
        layer: The vector of a token: a layer number, "top", "average", "concat" (all layers
            concatenated, L + 1 times as long) or "mix".
        pooling: "mean" or "max" over the tokens of a text, or "first" for its first token.
        mix: With layer "mix": the weights s, one per layer, not normalized.
        gamma: With layer "mix": the scale.
        precision: "exact" or "fast".
        device: "auto", "cpu", "cuda", ...
        batch_tokens: Maximum number of tokens per batch. Default: chosen by the model.

    Attributes:
        fingerprint_: The fingerprint of the model. `transform` raises an error if it has changed.
        n_features_out_: The dimension of a vector.
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
        """Store the fingerprint of the model. Does not learn from the texts.

        Args:
            X: The texts: strings, or lists of tokens.
            y: Ignored.
        """
        check_texts(X)
        named = self._named(None)
        with named.loaded() as elmo:
            self.n_features_out_ = named.choice(elmo.config.n_layers).dim(elmo.config.output_dim)
        self.fingerprint_ = named.identify()
        return self

    def transform(self, X: Iterable[Any]) -> FloatArray:
        """Return the vectors of texts, shape (n, n_features_out_).

        Args:
            X: The texts: strings, or lists of tokens.
        """
        check_texts(X)
        with self._named(getattr(self, "fingerprint_", None)).loaded() as elmo:
            vectors: FloatArray = elmo.encode(
                X, layer=self.layer, pooling=self.pooling, mix=self.mix, gamma=self.gamma
            )
            return vectors

    def _named(self, fingerprint: str | None) -> NamedModel:
        check_choice("pooling", self.pooling, POOLINGS)
        return NamedModel(
            *(self.model, self.precision, self.device, self.batch_tokens, fingerprint),
            *(self.layer, self.mix, self.gamma),
        )

    @property
    def _n_features_out(self) -> int:
        return self.n_features_out_

    def __sklearn_tags__(self) -> Any:
        """Declare that the input is text and that `fit` is optional."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        tags.requires_fit = False
        tags.transformer_tags.preserves_dtype = []
        return tags
