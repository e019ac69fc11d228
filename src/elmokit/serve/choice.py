"""Which layers a request asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elmokit.embed.spaces import Space, choose_spaces, every_space, layer_space
from elmokit.embed.vectors import FloatArray, mix_weights
from elmokit.errors import ConfigError
from elmokit.serve.errors import RequestRejected

Asked = str | int | list[int]


@dataclass(frozen=True)
class Choice:
    """Layers, or one vector made of them.

    Attributes:
        asked: As in the request: "top", "average", "mix", a number, or the numbers of layers.
        numbers: The layers themselves; None where one vector is made of them.
        weights: Of each layer in that one vector.
    """

    asked: Asked
    numbers: tuple[int, ...] | None
    weights: tuple[float, ...] = ()

    @property
    def names(self) -> list[str]:
        """What each vector of a token is called."""
        if self.numbers is None:
            return [str(self.asked)]
        return [f"layer_{j}" for j in self.numbers]

    def of(self, layers: FloatArray) -> FloatArray:
        """Return (n, T, 2D), or (T, 2D) for one vector, from (L + 1, T, 2D); a copy."""
        if self.numbers is not None:
            chosen: FloatArray = np.ascontiguousarray(layers[list(self.numbers)])
            return chosen
        space = Space("", self.weights)
        return np.array(space.of(layers), dtype=np.float32, order="C")


def choose(
    asked: Asked, n_layers: int, s: Sequence[float] | None = None, gamma: float | None = None
) -> Choice:
    """Read the fields `layers`, `s` and `gamma`."""
    _check_mix(asked, s, gamma)
    if asked == "mix":
        try:
            weights = np.float32(1.0 if gamma is None else gamma) * mix_weights(n_layers, s, None)
        except ConfigError as error:
            raise RequestRejected(422, str(error), param="s") from error
        return Choice(asked, None, tuple(weights.tolist()))
    if asked == "average":
        return Choice(asked, None, (1.0 / n_layers,) * n_layers)
    if asked == "top" or isinstance(asked, int):
        j = n_layers - 1 if asked == "top" else _number(int(asked), n_layers)
        return Choice(asked, None, layer_space(j, n_layers).weights)
    numbers = range(n_layers) if asked == "all" else [_number(int(j), n_layers) for j in asked]
    return Choice(list(numbers), tuple(numbers))


def choose_all(asked: Asked, n_layers: int, s: Sequence[float] | None = None) -> list[Space]:
    """Read `layers` and `s` where layers are compared: "all" has the average, and the mix by s."""
    if asked == "all":
        mix = [] if s is None else choose_all("mix", n_layers, s)
        return [*every_space(n_layers), *mix]
    _check_mix(asked, s, None)
    names = asked if isinstance(asked, list) else [asked]
    if asked == "mix" and s is None:
        s = [1.0 / n_layers] * n_layers
    for name in names:
        if isinstance(name, int):
            _number(name, n_layers)
    try:
        return choose_spaces([str(name) for name in names], n_layers, s)
    except ConfigError as error:
        raise RequestRejected(422, str(error), param="s" if asked == "mix" else "layers") from error


def _check_mix(asked: Asked, s: Sequence[float] | None, gamma: float | None) -> None:
    for name, value in (("s", s), ("gamma", gamma)):
        if value is not None and asked != "mix":
            raise RequestRejected(
                422, f'{name} goes with "layers": "mix", found {asked!r:.40}.', param=name
            )


def _number(j: int, n_layers: int) -> int:
    if not 0 <= j < n_layers:
        raise RequestRejected(
            422, f"No layer {j}. This model has 0 to {n_layers - 1}.", param="layers"
        )
    return j
