"""One vector per token, as the settings of all integrations say it: `layer` and `mix`."""

from __future__ import annotations

from collections.abc import Sequence

from elmokit.embed.spaces import Space, choose_spaces, probe_spaces
from elmokit.errors import ConfigError


def choose_space(layer: str | int, n_layers: int, mix: Sequence[float] | None) -> Space:
    """Return what makes one vector of the layers of a token.

    Args:
        layer: The number of a layer, "top", "average", "mix", or "concat" (all side by side).
        n_layers: L + 1.
        mix: With "mix", the weights s, one per layer, used as they are.
    """
    if (layer == "mix") != (mix is not None):
        raise ConfigError(
            "Weights s are needed for layer='mix' and for no other choice; "
            f"found layer={layer!r} with mix={mix}."
        )
    if layer == "concat":
        return probe_spaces(["concat"], n_layers)[0]
    if layer == "all":
        raise ConfigError("One vector per token is asked for, and layer='all' is several.")
    return choose_spaces([str(layer)], n_layers, mix)[0]
