"""ELMo in a task model: [x_k; ELMo_k] at the input, [h_k; ELMo_k] after the task model's RNN."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from elmokit.embed.fingerprint import fingerprint
from elmokit.embed.model import ElmoModel
from elmokit.model.mix import ScalarMix
from elmokit.settings import Count, Settings, Size
from elmokit.tasks.config import ElmoConfig


class BilmInfo(Settings):
    """The biLM that a task model was trained with.

    Attributes:
        model: Argument of `elmokit.load`; None for the bundled model.
        name: Name in the model's metadata.
        fingerprint: Digest of the biLM, see `elmokit.embed.fingerprint`.
        n_layers: Number of layers, L + 1.
        dim: Number of dimensions of a layer, 2 * D.
        precision: "exact" or "fast".
    """

    model: str | None
    name: str | None
    fingerprint: str
    n_layers: Size
    dim: Count
    precision: str

    @classmethod
    def of(cls, elmo: ElmoModel, model: str | None, state: str) -> BilmInfo:
        """Describe a biLM that was loaded with `elmokit.load(model)`."""
        if model is not None and Path(model).exists():
            model = str(Path(model).resolve())
        name = elmo.metadata.get("name")
        return cls(
            model,
            None if name is None else str(name),
            fingerprint(elmo, state),
            elmo.config.n_layers,
            elmo.config.output_dim,
            elmo.precision,
        )


class ElmoMixes(nn.Module):
    """The layer mixes of a task model, one for each place where ELMo is added.

    The layers are precomputed by a frozen biLM, so gradients stop at the mixes.

    Attributes:
        input_dim: Number of dimensions that ELMo adds to the input: 2 * D or 0.
        output_dim: Number of dimensions that ELMo adds to the output: 2 * D or 0.
    """

    def __init__(self, config: ElmoConfig, bilm: BilmInfo | None) -> None:
        super().__init__()
        self.strength = config.penalty
        self.mixes = nn.ModuleDict()
        self.dropout = nn.Dropout(config.dropout)
        is_top = config.layer == "top"  # if so, only gamma is learned
        for place in ("input", "output"):
            if bilm is not None and config.place in (place, "both"):
                self.mixes[place] = ScalarMix(
                    bilm.n_layers,
                    layer_norm=config.layer_norm,
                    s=None if is_top else config.weights(bilm.n_layers),
                    top_only=is_top,
                )
        dim = 0 if bilm is None else bilm.dim
        self.input_dim = dim if "input" in self.mixes else 0
        self.output_dim = dim if "output" in self.mixes else 0

    def at_input(self, x: Tensor, layers: Tensor | None) -> Tensor:
        """Return [x_k; ELMo_k], or x_k if ELMo is not used at the input.

        Shape:
            x (B, T, X), layers (L + 1, B, T, 2D) -> (B, T, X + 2D)
        """
        return self._concatenate("input", x, layers)

    def at_output(self, h: Tensor, layers: Tensor | None) -> Tensor:
        """Return [h_k; ELMo_k], or h_k if ELMo is not used at the output."""
        return self._concatenate("output", h, layers)

    def _concatenate(self, place: str, x: Tensor, layers: Tensor | None) -> Tensor:
        if place not in self.mixes or layers is None:
            return x
        return torch.cat([x, self.dropout(self.mixes[place](layers))], dim=-1)

    def penalty(self) -> Tensor | float:
        """Return lambda * ||w||^2, summed over the mixes; the training loop adds it to the loss."""
        return sum(mix.penalty(self.strength) for mix in self._mixes() if mix.w.requires_grad)

    def learned_weights(self) -> dict[str, dict[str, object]]:
        """Return the current weights s_j and gamma for each place."""
        learned: dict[str, dict[str, object]] = {}
        for place, mix in zip(self.mixes, self._mixes(), strict=True):
            s = [0.0] * (len(mix.w) - 1) + [1.0] if mix.top_only else mix.s.tolist()
            learned[place] = {"s": [round(v, 4) for v in s], "gamma": round(mix.gamma.item(), 4)}
        return learned

    def _mixes(self) -> list[ScalarMix]:
        return [mix for mix in self.mixes.values() if isinstance(mix, ScalarMix)]
