"""The mix of the layers for a task: ELMo_k = gamma * sum_j s_j h_{k,j}, s = softmax(w)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.errors import ConfigError, warn

LayerNorm = Literal["token", "batch"] | bool

_TOKEN_EPS = 1e-5
_BATCH_EPS = 1e-13  # AllenNLP's "tiny" for float32


class ScalarMix(nn.Module):
    """One learned mix of the layers.

    Args:
        n_layers: Number of layers, L + 1.
        layer_norm: `"token"` (or True) normalizes each h_{k,j} to mean 0 and variance 1 before
            mixing (Ba et al. 2016, without learned scale and bias). `"batch"` is AllenNLP's
            `do_layer_norm`, which uses one mean and one variance per layer for all tokens of the
            batch, so a vector depends on the other sentences of its batch.
        s: Fixed weights that sum to 1, one per layer.
        w: Fixed weights before the softmax, like AllenNLP's `scalar_mix_parameters`.
        gamma: Initial value of gamma. If the weights are fixed, gamma is not trained either.
        top_only: Use gamma times the top layer, as in TagLM and CoVe.
    """

    def __init__(
        self,
        n_layers: int,
        *,
        layer_norm: LayerNorm = False,
        s: Sequence[float] | None = None,
        w: Sequence[float] | None = None,
        gamma: float = 1.0,
        top_only: bool = False,
    ) -> None:
        super().__init__()
        if layer_norm not in (True, False, "token", "batch"):
            raise ConfigError(
                f"Invalid layer_norm {layer_norm!r}: expected False, True, 'token' or 'batch'."
            )
        if layer_norm == "batch":
            warn(
                "layer_norm='batch' makes a vector depend on the other sentences of its batch; "
                "use it only to match AllenNLP's do_layer_norm=True."
            )
        self.layer_norm = "token" if layer_norm is True else layer_norm
        self.top_only = top_only
        # One tensor instead of a list, because DataParallel does not copy lists to its replicas.
        trainable = s is None and w is None
        self.w = nn.Parameter(_initial_w(n_layers, s, w), requires_grad=trainable and not top_only)
        self.gamma = nn.Parameter(torch.tensor([float(gamma)]), requires_grad=trainable)

    @property
    def s(self) -> Tensor:
        """The weights of the layers, shape (L + 1,)."""
        return torch.softmax(self.w, dim=0)

    def forward(self, layers: Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix the layers.

        Shape:
            layers (L + 1, ..., 2D), mask (...) -> (..., 2D)
        """
        if len(layers) != len(self.w):
            raise ConfigError(
                f"Invalid number of layers: expected {len(self.w)}, one per weight of the mix; got "
                f"{len(layers)}. Create the mix with n_layers=bilm.config.n_layers."
            )
        if self.layer_norm:
            layers = torch.stack([self._normalize(layer, mask) for layer in layers])
        if self.top_only:
            return self.gamma * layers[-1]
        mixed: Tensor = self.gamma * torch.tensordot(self.s, layers, dims=1)
        return mixed

    def _normalize(self, layer: Tensor, mask: Tensor | None) -> Tensor:
        if self.layer_norm == "token":
            return F.layer_norm(layer, layer.shape[-1:], eps=_TOKEN_EPS)
        if mask is None:
            mask = layer.new_ones(layer.shape[:-1], dtype=torch.bool)
        # With 16-bit numbers, sums over an entire batch would overflow or lose precision.
        values = layer.float() if layer.dtype in (torch.float16, torch.bfloat16) else layer
        is_token = mask.unsqueeze(-1)
        count = mask.sum() * layer.shape[-1]
        mean = (values * is_token).sum() / count
        variance = (((values - mean) * is_token) ** 2).sum() / count
        return ((values - mean) / torch.sqrt(variance + _BATCH_EPS)).to(layer.dtype)

    def penalty(self, strength: float) -> Tensor:
        """Return lambda * ||w||^2, for a task to add to its loss.

        A large lambda keeps the mix close to the average of the layers.

        Args:
            strength: lambda. The paper used values from 0.001 to 1.
        """
        return strength * (self.w**2).sum()


def _initial_w(n_layers: int, s: Sequence[float] | None, w: Sequence[float] | None) -> Tensor:
    if s is not None and w is not None:
        raise ConfigError(
            "s and w cannot be combined. Pass either s (weights that sum to 1) or w (weights "
            "before the softmax)."
        )
    weights = s if s is not None else w
    if weights is None:
        return torch.zeros(n_layers)
    if len(weights) != n_layers:
        raise ConfigError(
            f"Invalid number of mix weights: expected {n_layers}, one per layer; got "
            f"{len(weights)}."
        )
    values = torch.tensor([float(weight) for weight in weights])
    if s is None:
        return values
    # Check the arguments instead of the tensor, which has no values inside `skip_init`.
    if not (all(weight >= 0 for weight in s) and abs(sum(s) - 1.0) < 1e-3):
        raise ConfigError(
            f"Invalid weights s {list(weights)}: expected non-negative numbers that sum to 1. "
            "If these are weights before the softmax, pass them as w."
        )
    return torch.log(values.clamp(min=1e-30))
