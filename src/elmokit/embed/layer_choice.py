"""Select a layer or a combination of layers.

The library, the command line, HTTP requests, indexes, probes and plots all use the same three
arguments:

layer   a layer number     h_{k,j}, (2D,)
        "top"              the last layer
        "average"          the mean of all layers
        "concat"           all layers concatenated, ((L + 1) 2D,)
        "mix"              gamma * sum_j s_j h_{k,j}
        "all"              all layers, (L + 1, 2D); one result per layer when comparing layers
mix     with "mix", the weights s, one per layer, which are not normalized
gamma   with "mix", the scale
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ConfigError

Array = TypeVar("Array", bound=Any)

#: The choices that are valid for every model, in addition to layer numbers.
NAMES = ("top", "average", "concat", "mix", "all")
#: The default choices when comparing layers.
ALL_AND_AVERAGE = ("all", "average")


@dataclass(frozen=True)
class LayerChoice:
    """A layer, or a combination of layers, of a model with `n_layers` layers; see `parse`.

    Attributes:
        name: A layer number, or one of `NAMES`.
        n_layers: Number of layers of the model, L + 1.
        mix: With "mix", the weights s.
        gamma: With "mix", the scale.
    """

    name: str
    n_layers: int
    mix: tuple[float, ...] | None = None
    gamma: float = 1.0

    @classmethod
    def parse(
        cls,
        layer: Layer,
        n_layers: int,
        mix: Sequence[float] | None = None,
        gamma: float = 1.0,
        *,
        allow_all: bool = True,
    ) -> LayerChoice:
        """Parse one choice.

        Args:
            layer: The choice.
            n_layers: Number of layers of the model, L + 1.
            mix: With "mix", the weights s, one per layer, which are not normalized.
            gamma: With "mix", the scale.
            allow_all: Whether to accept "all", which gives several vectors per token.

        Raises:
            ConfigError: The choice is invalid for this model.
        """
        name = check_layer(layer, n_layers, allow_all=allow_all)
        check_mix([name], mix, gamma)
        if mix is None:
            return cls(name, n_layers)
        if not mix_weights(n_layers, mix, gamma).any():
            raise ConfigError(f"Invalid mix {mix!r} with gamma {gamma}: all weights are 0.")
        return cls(name, n_layers, tuple(float(weight) for weight in mix), float(gamma))

    @classmethod
    def parse_all(
        cls,
        layer: Layers,
        n_layers: int,
        mix: Sequence[float] | None = None,
        gamma: float = 1.0,
    ) -> list[LayerChoice]:
        """Parse one or more choices, and return choices that give one vector per token.

        "all" is replaced with one choice for each layer. Repeated choices are returned only once.
        """
        layers = [layer] if isinstance(layer, Layer | LayerChoice) else list(layer)
        if not layers:
            raise ConfigError(f"Invalid layer []: {_expected(n_layers)}.")
        names = [
            check_layer(item, n_layers) for item in layers if not isinstance(item, LayerChoice)
        ]
        check_mix(names, mix, gamma)
        choices: dict[str, LayerChoice] = {}
        for item in layers:
            if not isinstance(item, LayerChoice):
                weights = (mix, gamma) if check_layer(item) == "mix" else ()
                item = cls.parse(item, n_layers, *weights)
            for single in item.expand():
                choices.setdefault(single.label, single)
        return list(choices.values())

    def expand(self) -> list[LayerChoice]:
        """Return choices with one vector per token: all layers for "all", otherwise this choice."""
        if self.name != "all":
            return [self]
        return [LayerChoice(str(j), self.n_layers) for j in range(self.n_layers)]

    @property
    def number(self) -> int | None:
        """The layer number, if the choice is a single layer."""
        if self.name == "top":
            return self.n_layers - 1
        return int(self.name) if self.name.isdigit() else None

    @property
    def label(self) -> str:
        """The name in results: "layer 2" (also for "top"), "average", "concat", "mix" or "all"."""
        return self.name if self.number is None else f"layer {self.number}"

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each layer in the sum; 1 for each layer of "concat" and "all"."""
        if self.mix is not None:
            return tuple(mix_weights(self.n_layers, self.mix, self.gamma).tolist())
        if self.name == "average":
            return (1.0 / self.n_layers,) * self.n_layers
        return tuple(float(self.number in (None, j)) for j in range(self.n_layers))

    def shape(self, layer_dim: int) -> tuple[int, ...]:
        """Return the shape of the result for one token, given the dimension of a layer, 2 * D."""
        return (self.n_layers, layer_dim) if self.name == "all" else (self.dim(layer_dim),)

    def dim(self, layer_dim: int) -> int:
        """Return the dimension of the resulting vectors, given the dimension of a layer, 2 * D."""
        return self.n_layers * layer_dim if self.name == "concat" else layer_dim

    def apply(self, layers: Array) -> Array:
        """Apply the choice to all layers of T tokens, given as a NumPy array or a tensor.

        Shape:
            (L + 1, T, 2D) -> (T, 2D); (T, (L + 1) 2D) for "concat"; unchanged for "all"
        """
        selected: Array = layers
        if self.number is not None:
            selected = layers[self.number]
        elif self.name == "average":
            selected = layers.mean(0)
        elif self.name == "concat":
            n_layers, n, dim = layers.shape
            selected = layers.swapaxes(0, 1).reshape(n, n_layers * dim)
        elif self.name == "mix":
            mixed: Any = sum(s * h for s, h in zip(self.weights, layers, strict=True))
            selected = mixed
        return selected

    def to_json(self) -> dict[str, Any]:
        """Return the arguments of `parse` as JSON values, without `n_layers`."""
        if self.mix is None:
            return {"layer": self.name}
        return {"layer": self.name, "mix": list(self.mix), "gamma": self.gamma}


#: Argument types: a single choice, and one or more choices.
Layer = str | int
Layers = Layer | LayerChoice | Iterable[Layer | LayerChoice]


def check_layer(layer: Layer, n_layers: int | None = None, *, allow_all: bool = True) -> str:
    """Validate a choice and return its name. Without `n_layers`, any layer number is valid."""
    name = str(layer).strip()
    if name in NAMES and (allow_all or name != "all"):
        return name
    is_number = name.isascii() and name.isdigit() and len(name) < 10
    if is_number and (n_layers is None or int(name) < n_layers):
        return str(int(name))
    raise ConfigError(f"Invalid layer '{layer}': {_expected(n_layers, allow_all=allow_all)}.")


def _expected(n_layers: int | None, *, allow_all: bool = True) -> str:
    numbers = "a layer number" if n_layers is None else f"0 to {n_layers - 1}"
    *first, last = NAMES if allow_all else NAMES[:-1]
    return f"expected {', '.join([numbers, *first])} or {last}"


def check_mix(names: Sequence[str], mix: Sequence[float] | None, gamma: float = 1.0) -> None:
    """Raise an error if "mix" has no weights, or if weights or gamma are given without "mix"."""
    if "mix" in names and mix is None:
        raise ConfigError(
            "layer='mix' requires mix=[...] with one weight per layer (on the command line: "
            "--mix). For equal weights, use layer='average'."
        )
    if "mix" not in names and (mix is not None or gamma != 1.0):
        argument = f"mix={mix}" if mix is not None else f"gamma={gamma}"
        raise ConfigError(f"{argument} requires layer='mix' (on the command line: --layer mix).")


def mix_weights(
    n_layers: int,
    s: Sequence[float] | None = None,
    gamma: float = 1.0,
    w: Sequence[float] | None = None,
) -> NDArray[np.float32]:
    """Return gamma * s_j for each layer, given s or w (the weights before the softmax)."""
    if s is not None and w is not None:
        raise ConfigError("Expected either s or w (the weights before the softmax), got both.")
    if not np.isfinite(gamma):
        raise ConfigError(f"Invalid value for gamma: {gamma}. Expected a finite number.")
    values = s if s is not None else w
    if values is None:
        values = [1.0 / n_layers] * n_layers
    try:
        weights = np.asarray(values, dtype=np.float32)
    except (TypeError, ValueError):
        weights = np.empty(0, dtype=np.float32)
    if weights.shape != (n_layers,) or not np.isfinite(weights).all():
        raise ConfigError(
            f"Invalid mix {values!r}: expected {n_layers} finite weights, one per layer of the "
            "model."
        )
    if w is not None:
        weights = np.exp(weights - weights.max())
        weights /= weights.sum()
    return np.float32(gamma) * weights
