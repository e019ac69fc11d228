"""The layers and the data type of stored vectors."""

from __future__ import annotations

from functools import cached_property
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from elmokit.embed.blocks import TokenIds
from elmokit.embed.layer_choice import LayerChoice
from elmokit.errors import DataError
from elmokit.settings import Bounds, Settings

DataType = Literal["float32", "float16"]
Vectors = NDArray[np.floating[Any]]


class Layout(Settings):
    """The layers and the data type of the vectors in a file.

    Attributes:
        layer: A layer, a combination, or "all"; see `elmokit.embed.layer_choice`.
        dtype: "float32", or "float16" with half the size and three significant digits.
        n_layers: Number of layers of the model, L + 1.
        dim: Number of dimensions of a layer, 2 * D.
        mix: With layer "mix", the weights s, one per layer.
        gamma: With layer "mix", the scale.
    """

    layer: str
    dtype: DataType
    # The upper limits are those of `elmokit.config`.
    n_layers: Annotated[int, Bounds(ge=0, le=129)]
    dim: Annotated[int, Bounds(ge=0, le=2**17)]
    mix: tuple[float, ...] | None = None
    gamma: float = 1.0

    @model_validator(mode="after")
    def _check_choice(self) -> Self:
        _ = self.choice
        return self

    @cached_property
    def choice(self) -> LayerChoice:
        """The layer choice."""
        return LayerChoice.parse(self.layer, self.n_layers, self.mix, self.gamma)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one token's vectors, for example (L + 1, 2D) for all layers."""
        return self.choice.shape(self.dim)

    def select(self, layers: Any) -> Any:
        """From all layers, compute the vectors to store: (L + 1, n, 2D) -> (K, n, W).

        The layers can be a NumPy array or a tensor. K is L + 1 for "all" and 1 otherwise, and W is
        the last element of `shape`.
        """
        vectors = self.choice.apply(layers)
        return vectors if self.layer == "all" else vectors[None]

    def check_finite(self, vectors: Vectors, tokens: TokenIds) -> None:
        """Raise an error if a value is infinite, not a number, or too large for the data type.

        Args:
            vectors: The vectors, (K, N, W).
            tokens: The tokens, for the message.
        """
        invalid = np.flatnonzero(~np.isfinite(vectors).all(axis=(0, 2)))
        if len(invalid):
            number = int(np.searchsorted(np.cumsum(tokens.lengths), invalid[0], side="right"))
            start, length = int(tokens.starts[number]), int(tokens.lengths[number])
            words = [tokens.words[i] for i in tokens.ids[start : start + length].tolist()]
            raise DataError(
                f"The vectors of the sentence '{' '.join(words)[:80]}' contain values that are "
                f"infinite, not a number, or too large for {self.dtype}. "
                + ("Use float32." if self.dtype == "float16" else "Check the weights of the model.")
            )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dictionary."""
        values = super().to_dict()
        if self.mix is None:
            del values["mix"], values["gamma"]
        return values
