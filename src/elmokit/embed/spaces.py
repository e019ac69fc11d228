"""One vector per token out of R_k: a layer, the average of all, or a mix with given weights.

Cosines ask for vectors of length 1; `unit` makes them, and leaves a zero vector zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elmokit.embed.vectors import FloatArray, mix_weights
from elmokit.errors import ConfigError


@dataclass(frozen=True)
class Space:
    """A way to see a token as one vector: sum_j s_j h_{k,j}.

    Attributes:
        name: What it is called in results: "layer 0", ..., "average", "mix".
        weights: s, one per layer.
    """

    name: str
    weights: tuple[float, ...]

    @property
    def layer(self) -> int | None:
        """The layer this is, if it is one as it stands."""
        used = [j for j, s in enumerate(self.weights) if s]
        return used[0] if len(used) == 1 and self.weights[used[0]] == 1.0 else None

    def of(self, layers: FloatArray) -> FloatArray:
        """Return the vectors of tokens, shape (T, 2D), from all their layers (L + 1, T, 2D)."""
        if (j := self.layer) is not None:
            layer: FloatArray = layers[j]
            return layer
        mixed: FloatArray = np.tensordot(np.array(self.weights, dtype=np.float32), layers, axes=1)
        return mixed


@dataclass(frozen=True)
class Concatenation(Space):
    """All layers side by side, each with its weight: a vector of (L + 1) 2D numbers."""

    @property
    def layer(self) -> int | None:
        """None: it is all of them."""
        return None

    def of(self, layers: FloatArray) -> FloatArray:
        """Return the vectors of tokens, shape (T, (L + 1) 2D)."""
        weighted = [np.float32(s) * h for s, h in zip(self.weights, layers, strict=True)]
        joined: FloatArray = np.concatenate(weighted, axis=-1)
        return joined


def layer_space(j: int, n_layers: int) -> Space:
    """Return the space of one layer."""
    return Space(f"layer {j}", tuple(float(i == j) for i in range(n_layers)))


def every_layer(n_layers: int) -> list[Space]:
    """Return all layers, the lowest first."""
    return [layer_space(j, n_layers) for j in range(n_layers)]


def every_space(n_layers: int) -> list[Space]:
    """Return all layers, then their average."""
    return [*every_layer(n_layers), _average(n_layers)]


def choose_spaces(
    names: Sequence[str], n_layers: int, mix: Sequence[float] | None = None
) -> list[Space]:
    """Return the spaces that a user asked for, in that order.

    Args:
        names: "0", "1", ..., "top", "average", "mix" or "all" (every layer and the average).
        n_layers: Layers of the model, L + 1.
        mix: The weights of "mix", one per layer, used as they are.
    """
    chosen: dict[str, Space] = {}
    for name in names:
        if name == "mix":
            if mix is None:
                raise ConfigError(f"A mix needs its {n_layers} weights, one per layer.")
            chosen["mix"] = Space("mix", tuple(mix_weights(n_layers, mix, None).tolist()))
            continue
        for space in _named(name, n_layers, "mix"):
            chosen[space.name] = space
    return list(chosen.values())


def probe_spaces(names: Sequence[str], n_layers: int) -> list[Space]:
    """Return the spaces to probe: "concat", all layers side by side, in place of "mix"."""
    chosen: dict[str, Space] = {}
    for name in names:
        joined = Concatenation("concat", (1.0,) * n_layers)
        for space in [joined] if name == "concat" else _named(name, n_layers, "concat"):
            chosen[space.name] = space
    return list(chosen.values())


def _named(name: str, n_layers: int, other: str) -> list[Space]:
    """Return what a name stands for; `other` is one more that the caller knows."""
    if name == "all":
        return every_space(n_layers)
    if name == "top":
        return [layer_space(n_layers - 1, n_layers)]
    if name == "average":
        return [_average(n_layers)]
    if name.isascii() and name.isdigit() and int(name) < n_layers:
        return [layer_space(int(name), n_layers)]
    raise ConfigError(
        f"No layer '{name}'. This model has 0 to {n_layers - 1}, top, average, {other}, and all."
    )


def _average(n_layers: int) -> Space:
    return Space("average", (1.0 / n_layers,) * n_layers)


def unit(vectors: FloatArray) -> FloatArray:
    """Return vectors of length 1, shape (..., D)."""
    lengths: FloatArray = np.linalg.norm(vectors, axis=-1, keepdims=True)
    lengths[lengths == 0] = 1
    scaled: FloatArray = vectors / lengths
    return scaled


def cosines(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return the cosine of each row of `a` with the same row of `b`, shape (n,)."""
    found: FloatArray = np.einsum("nd,nd->n", unit(a), unit(b))
    return found
