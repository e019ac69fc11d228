"""The vectors that are stored for each token: layers and number type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.layer_choice import LayerChoice
from elmokit.errors import ConfigError, DataError, check_choice

NumberType = Literal["float32", "float16"]
NUMBER_TYPES: tuple[str, ...] = ("float32", "float16")

# What a model can have, see `elmokit.config`.
_MAX_LAYERS, _MAX_DIM = 129, 2**17

Vectors = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Layout:
    """The vectors of one token in a file.

    Attributes:
        layer: Which vector, or "all" of them; see `elmokit.embed.layer_choice`.
        dtype: "float32", or "float16" with half the size and three significant digits.
        n_layers: L + 1.
        dim: Dimensions of a layer, 2D.
        mix: With layer "mix", its weights.
        gamma: With layer "mix", its scale.
    """

    layer: str
    dtype: str
    n_layers: int
    dim: int
    mix: tuple[float, ...] | None = None
    gamma: float = 1.0

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, NUMBER_TYPES)
        if not (0 <= self.n_layers <= _MAX_LAYERS and 0 <= self.dim <= _MAX_DIM):
            raise ConfigError(f"Invalid sizes: {self.n_layers} layers of {self.dim} dimensions.")
        _ = self.choice  # raises an error if the model has no such layer

    @cached_property
    def choice(self) -> LayerChoice:
        """The layer selection."""
        return LayerChoice.parse(self.layer, self.n_layers, self.mix, self.gamma)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one token's vectors: (L + 1, 2D) for all layers, else (2D,)."""
        return self.choice.shape(self.dim)

    def choose(self, layers: Any) -> Any:
        """Return the stored vectors, in numpy or torch: (L + 1, n, 2D) -> (K, n, W).

        K is L + 1 for "all" and 1 otherwise; W is the last dimension of `shape`.
        """
        chosen = self.choice.apply(layers)
        return chosen if self.layer == "all" else chosen[None]

    def check_finite(self, vectors: Vectors, sentence: Callable[[int], str]) -> None:
        """Raise an error if a value is infinite, not a number, or too large for the number type.

        Args:
            vectors: (K, N, 2D).
            sentence: Returns the sentence of a token, given the number of the token.
        """
        bad = np.flatnonzero(~np.isfinite(vectors).all(axis=(0, 2)))
        if len(bad):
            raise DataError(
                f"The vectors of the sentence '{sentence(int(bad[0]))[:80]}' contain values that "
                f"are infinite, not a number, or too large for {self.dtype}. "
                + ("Use float32." if self.dtype == "float16" else "Check the weights of the model.")
            )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = asdict(self)
        if self.mix is None:
            del values["mix"], values["gamma"]
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Layout:
        """Build a layout from JSON values."""
        mix: Sequence[float] | None = values.get("mix")
        return cls(
            layer=values["layer"] if "layer" in values else values["layers"],  # the older name
            dtype=values["dtype"],
            n_layers=values["n_layers"],
            dim=values["dim"],
            mix=None if mix is None else tuple(mix),
            gamma=values.get("gamma", 1.0),
        )
