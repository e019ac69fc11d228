"""What is stored for each token: which layers, in which number type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.vectors import FloatArray, SentenceVectors, mix_weights
from elmokit.errors import ConfigError, DataError, nearest

LayerChoice = Literal["all", "top", "average", "mix"]
NumberType = Literal["float32", "float16"]
LAYER_CHOICES: tuple[str, ...] = ("all", "top", "average", "mix")
NUMBER_TYPES: tuple[str, ...] = ("float32", "float16")

Vectors = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Layout:
    """The vectors of one token in a file.

    Attributes:
        layers: "all" R_k, every layer by itself; "top" the last one; "average" their mean; "mix"
            gamma * sum_j s_j h_{k,j} with the weights below.
        dtype: "float32", or "float16" for half the size and three digits.
        n_layers: L + 1.
        dim: 2D.
        mix: s, one weight per layer, used as they are.
        gamma: Scale of the mix.
    """

    layers: str
    dtype: str
    n_layers: int
    dim: int
    mix: tuple[float, ...] | None = None
    gamma: float = 1.0

    def __post_init__(self) -> None:
        _one_of("layers", self.layers, LAYER_CHOICES)
        _one_of("dtype", self.dtype, NUMBER_TYPES)
        if (self.layers == "mix") != (self.mix is not None):
            raise ConfigError(
                "Weights s are needed for layers='mix' and for no other choice; "
                f"found layers='{self.layers}' with mix={self.mix}."
            )
        if self.mix is not None:
            mix_weights(self.n_layers, self.mix, None)
        if not np.isfinite(self.gamma):
            raise ConfigError(f"gamma should be a finite number, found {self.gamma}.")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one token's vectors: (L + 1, 2D) for all layers, else (2D,)."""
        return (self.n_layers, self.dim) if self.layers == "all" else (self.dim,)

    def vectors(self, sentence: SentenceVectors) -> Vectors:
        """Return what is stored for a sentence, shape (T, *self.shape).

        Raises:
            DataError: A value is infinite, not a number, or too large for the number type.
        """
        with np.errstate(over="ignore"):  # said in our own words below
            chosen = self._choose(sentence).astype(self.dtype, copy=False)
        if not np.isfinite(chosen).all():
            raise DataError(
                f"The vectors of the sentence '{' '.join(sentence.tokens)[:80]}' hold values that "
                f"are infinite, not a number, or beyond {self.dtype}. "
                + ("Use float32." if self.dtype == "float16" else "Check the weights of the model.")
            )
        return chosen

    def _choose(self, sentence: SentenceVectors) -> FloatArray:
        if self.layers == "all":
            return sentence.layers.transpose(1, 0, 2)
        if self.layers == "top":
            return sentence.top
        if self.layers == "average":
            return sentence.average
        return sentence.mix(self.mix, self.gamma)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values: dict[str, Any] = {
            "layers": self.layers,
            "dtype": self.dtype,
            "n_layers": self.n_layers,
            "dim": self.dim,
        }
        if self.mix is not None:
            values |= {"mix": list(self.mix), "gamma": self.gamma}
        return values

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Layout:
        """Build a layout from JSON values."""
        mix: Sequence[float] | None = values.get("mix")
        return cls(
            layers=values["layers"],
            dtype=values["dtype"],
            n_layers=values["n_layers"],
            dim=values["dim"],
            mix=None if mix is None else tuple(mix),
            gamma=values.get("gamma", 1.0),
        )


def _one_of(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise ConfigError(
            f"No {name} '{value}'.{nearest(value, known)} There are: {', '.join(known)}."
        )
