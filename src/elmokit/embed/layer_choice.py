"""Which vector of a token to use: the one layer selection of elmokit.

The library, the command line, HTTP requests, indices, probes and plots take the same three
arguments and read them here:

layer   a layer number     h_{k,j}, (2D,)
        "top"              the last layer
        "average"          the mean of all layers
        "concat"           all layers side by side, ((L + 1) 2D,)
        "mix"              gamma * sum_j s_j h_{k,j}
        "all"              every layer by itself, (L + 1, 2D); where layers are compared, one
                           result per layer
mix     the weights s of "mix", one per layer, used as they are
gamma   the scale of "mix"
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import ConfigError

FloatArray = NDArray[np.float32]
Array = TypeVar("Array", bound=Any)

#: The choices that every model has, besides the numbers of its layers.
NAMES = ("top", "average", "concat", "mix", "all")
#: What is compared by default.
ALL_AND_AVERAGE = ("all", "average")


@dataclass(frozen=True)
class LayerChoice:
    """A layer, or what is made of all layers, for a model of `n_layers`; `parse` makes one.

    Attributes:
        name: The choice: the number of a layer, or one of `NAMES`.
        n_layers: Layers of the model, L + 1.
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
        """Read one choice.

        Args:
            layer: The choice.
            n_layers: Layers of the model, L + 1.
            mix: With "mix", the weights s, one per layer, used as they are.
            gamma: With "mix", the scale.
            allow_all: Whether there may be several vectors per token.

        Raises:
            ConfigError: It is not a choice that this model has.
        """
        name = check_layer(layer, n_layers, allow_all=allow_all)
        check_mix([name], mix, gamma)
        return cls._make(name, n_layers, mix, gamma)

    @classmethod
    def parse_all(
        cls,
        layer: Layers,
        n_layers: int,
        mix: Sequence[float] | None = None,
        gamma: float = 1.0,
    ) -> list[LayerChoice]:
        """Read one or several choices, each of which makes one vector per token.

        "all" stands for every layer. Choices that are the same are returned once.
        """
        given = [layer] if isinstance(layer, Layer | LayerChoice) else list(layer)
        if not given:
            raise ConfigError(f"No layer was chosen: {_expected(n_layers)}.")
        names = [check_layer(one, n_layers) for one in given if not isinstance(one, LayerChoice)]
        check_mix(names, mix, gamma)
        chosen: dict[str, LayerChoice] = {}
        for one in given:
            made = one
            if not isinstance(made, LayerChoice):
                made = cls._make(check_layer(made), n_layers, mix, gamma)
            for single in made.each():
                chosen.setdefault(single.label, single)
        return list(chosen.values())

    @classmethod
    def _make(
        cls, name: str, n_layers: int, mix: Sequence[float] | None, gamma: float
    ) -> LayerChoice:
        if name != "mix":
            return cls(name, n_layers)
        mix_weights(n_layers, mix, None)
        assert mix is not None
        return cls(name, n_layers, tuple(float(weight) for weight in mix), float(gamma))

    def each(self) -> list[LayerChoice]:
        """Return the choices of one vector per token: every layer for "all", else this one."""
        if self.name != "all":
            return [self]
        return [LayerChoice(str(j), self.n_layers) for j in range(self.n_layers)]

    @property
    def number(self) -> int | None:
        """The layer, if the choice is one layer."""
        if self.name == "top":
            return self.n_layers - 1
        return int(self.name) if self.name.isdigit() else None

    @property
    def label(self) -> str:
        """What results call it: "layer 2", also for "top", "average", "concat", "mix", "all"."""
        return self.name if self.number is None else f"layer {self.number}"

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each layer: in a sum, or of those that are used one by one."""
        if self.mix is not None:
            mixed = np.float32(self.gamma) * np.asarray(self.mix, dtype=np.float32)
            return tuple(mixed.tolist())
        if self.name == "average":
            return (1.0 / self.n_layers,) * self.n_layers
        if self.number is None:
            return (1.0,) * self.n_layers
        return tuple(float(j == self.number) for j in range(self.n_layers))

    def shape(self, dim: int) -> tuple[int, ...]:
        """Return the shape of what a token has, from the dimensions of a layer, 2D."""
        if self.name == "all":
            return (self.n_layers, dim)
        return (self.dim(dim),)

    def dim(self, dim: int) -> int:
        """Return the dimensions of a vector, from those of a layer, 2D."""
        return self.n_layers * dim if self.name == "concat" else dim

    def apply(self, layers: Array) -> Array:
        """Return the vectors of tokens from all their layers, numpy or torch.

        Shape:
            (L + 1, T, 2D) -> (T, 2D); (T, (L + 1) 2D) for "concat"; as given for "all"
        """
        chosen: Array = layers
        if self.number is not None:
            chosen = layers[self.number]
        elif self.name == "average":
            chosen = layers.mean(0)
        elif self.name == "concat":
            n_layers, n, dim = layers.shape
            chosen = layers.swapaxes(0, 1).reshape(n, n_layers * dim)
        elif self.name == "mix":
            mixed: Any = sum(s * h for s, h in zip(self.weights, layers, strict=True))
            chosen = mixed
        return chosen

    def to_json(self) -> dict[str, Any]:
        """Return the arguments of `parse` as JSON values, without `n_layers`."""
        if self.mix is None:
            return {"layer": self.name}
        return {"layer": self.name, "mix": list(self.mix), "gamma": self.gamma}


#: One choice, as users write it; and one or several.
Layer = str | int
Layers = Layer | LayerChoice | Iterable[Layer | LayerChoice]


def check_layer(layer: Layer, n_layers: int | None = None, *, allow_all: bool = True) -> str:
    """Return the name of a choice; without `n_layers`, any layer number is one."""
    name = str(layer).strip()
    known = NAMES if allow_all else NAMES[:-1]
    if name in known:
        return name
    is_number = name.isascii() and name.isdigit() and len(name) < 10
    if is_number and (n_layers is None or int(name) < n_layers):
        return str(int(name))
    raise ConfigError(f"Invalid layer '{layer}': {_expected(n_layers, allow_all=allow_all)}.")


def _expected(n_layers: int | None, *, allow_all: bool = True) -> str:
    numbers = "a layer number" if n_layers is None else f"0 to {n_layers - 1}"
    *first, last = NAMES if allow_all else NAMES[:-1]
    return f"expected {', '.join([numbers, *first])} or {last}"


def check_mix(names: Iterable[str], mix: Sequence[float] | None, gamma: float = 1.0) -> None:
    """Raise if the weights of a mix are missing, or are given with other layers only."""
    mixed = "mix" in list(names)
    if mixed and mix is None:
        raise ConfigError(
            "Invalid value for mix: None. Expected one weight per layer, since layer is 'mix'. For "
            "equal weights, use layer 'average'."
        )
    if not mixed and (mix is not None or gamma != 1.0):
        name, value = ("mix", list(mix)) if mix is not None else ("gamma", gamma)
        default = "none" if mix is not None else "1"
        raise ConfigError(
            f"Invalid value for {name}: {value}. Expected {default} unless layer is 'mix'."
        )
    if not np.isfinite(gamma):
        raise ConfigError(f"Invalid value for gamma: {gamma}. Expected a finite number.")


def mix_weights(n_layers: int, s: Sequence[float] | None, w: Sequence[float] | None) -> FloatArray:
    """Return the weights s of a mix from either form, checked against the number of layers."""
    if s is not None and w is not None:
        raise ConfigError("Pass either s (weights as used) or w (before the softmax), not both.")
    given = s if s is not None else w
    if given is None:
        return np.full(n_layers, 1.0 / n_layers, dtype=np.float32)
    try:
        weights = np.asarray(given, dtype=np.float32)
    except (TypeError, ValueError):
        weights = np.empty(0, dtype=np.float32)
    if weights.shape != (n_layers,) or not np.isfinite(weights).all():
        raise ConfigError(
            f"A mix of this model needs {n_layers} finite weights, one per layer; found {given!r}."
        )
    if w is not None:
        weights = np.exp(weights - weights.max())
        weights /= weights.sum()
    return weights
