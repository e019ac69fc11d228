"""AllenNLP's `ScalarMix`: elmokit's mix, with one parameter per layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError
from elmokit.model import mix


class ScalarMix(mix.ScalarMix):
    """gamma * sum_j softmax(w)_j h_j.

    Args:
        mixture_size: The number of layers.
        do_layer_norm: Normalize each layer before mixing, over all tokens of the batch.
        initial_scalar_parameters: w, before the softmax. Default: zeros.
        trainable: Whether w and gamma are learned.
    """

    def __init__(
        self,
        mixture_size: int,
        do_layer_norm: bool = False,
        initial_scalar_parameters: Sequence[float] | None = None,
        trainable: bool = True,
    ) -> None:
        # Not the constructor of our mix: its parameters have other names, and it warns that this
        # normalization depends on the batch, which is AllenNLP's documented behavior.
        nn.Module.__init__(self)
        initial = [0.0] * mixture_size
        if initial_scalar_parameters is not None:
            initial = [float(value) for value in initial_scalar_parameters]
        if len(initial) != mixture_size:
            raise ConfigError(
                f"Expected {mixture_size} initial scalar parameters, one per layer; found {initial}"
            )
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        self.layer_norm = "batch" if do_layer_norm else False
        self.top_only = False
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([value]), requires_grad=trainable) for value in initial
        )

    @property
    def w(self) -> Tensor:  # type: ignore[override]  # one parameter there, several here
        """The weights before the softmax, shape (L + 1,)."""
        return torch.cat(list(self.scalar_parameters))

    def forward(self, tensors: Sequence[Tensor] | Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix the layers.

        Shape:
            L + 1 tensors (..., 2D), mask (...) -> (..., 2D)
        """
        if len(tensors) != self.mixture_size:
            raise ConfigError(f"Expected {self.mixture_size} layers, found {len(tensors)}.")
        layers = tensors if isinstance(tensors, Tensor) else torch.stack(list(tensors))
        return super().forward(layers, mask)
