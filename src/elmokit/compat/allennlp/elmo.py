"""AllenNLP's `Elmo`, `ElmoTokenEmbedder`, `ScalarMix` and `batch_to_ids`."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.compat.allennlp.bilm import _ElmoBiLm
from elmokit.errors import ConfigError, DataError
from elmokit.model import mix
from elmokit.model.chars import batch_ids
from elmokit.model.elmo import remove_boundaries
from elmokit.progress import plural

_log = logging.getLogger(__name__)

#: Default model of `ElmoTokenEmbedder` and `ElmoEmbedder`.
DEFAULT_MODEL = "allennlp:original"


def batch_to_ids(batch: Iterable[Iterable[str]]) -> Tensor:
    """Return the character ids of a batch of tokenized sentences.

    Returns:
        Character ids (B, T, 50), zero for padding.
    """
    return torch.from_numpy(
        batch_ids([row if isinstance(row, str) else list(row) for row in batch])
    )


class ScalarMix(mix.ScalarMix):
    """A weighted sum of layers: gamma * sum_j softmax(w)_j h_j.

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
        # Skip the constructor of the base class. It uses other parameter names, and warns that the
        # normalization depends on the batch, which is documented behavior in AllenNLP.
        nn.Module.__init__(self)
        if initial_scalar_parameters is None:
            initial_scalar_parameters = [0.0] * mixture_size
        weights = list(map(float, initial_scalar_parameters))
        if len(weights) != mixture_size:
            raise ConfigError(
                f"initial_scalar_parameters must contain {plural(mixture_size, 'value')}, one per "
                f"layer; got {weights}."
            )
        self.mixture_size = mixture_size
        self.do_layer_norm = do_layer_norm
        self.layer_norm = "batch" if do_layer_norm else False
        self.top_only = False
        self.gamma = nn.Parameter(torch.ones(1), requires_grad=trainable)
        self.scalar_parameters = nn.ParameterList(
            nn.Parameter(torch.tensor([value]), requires_grad=trainable) for value in weights
        )

    @property
    def w(self) -> Tensor:  # type: ignore[override]  # a parameter in the base class
        """The weights before the softmax, shape (L + 1,)."""
        return torch.cat(list(self.scalar_parameters))

    def forward(self, tensors: Sequence[Tensor] | Tensor, mask: Tensor | None = None) -> Tensor:
        """Mix the layers.

        Shape:
            L + 1 tensors (..., 2D), mask (...) -> (..., 2D)
        """
        layers = tensors if isinstance(tensors, Tensor) else torch.stack(list(tensors))
        return super().forward(layers, mask)


class Elmo(nn.Module):
    """ELMo for a task model: a biLM and, for each output, a mix of its layers.

    Args:
        options_file: The `options.json` file (a path or a URL), or anything that `elmokit.load`
            accepts.
        weight_file: The HDF5 file. None if the first argument is a complete model.
        num_output_representations: The number of mixes.
        requires_grad: Whether the biLM can be trained.
        do_layer_norm: Normalize each layer before mixing, over all tokens of the batch.
        dropout: Dropout probability for the mixed vectors.
        vocab_to_cache: Words to encode in advance, for `word_inputs`. The first word is the
            padding token.
        keep_sentence_boundaries: Also return the vectors of <S> and </S>.
        scalar_mix_parameters: Fixed weights of the layers, before the softmax.
        module: A module to use instead of the biLM. It must have `num_layers` and
            `get_output_dim()`, and `module(inputs, word_inputs)` must return `activations` and
            `mask`, including sentence boundaries.
        stateful: Start each row of a batch from the final state of the same row in the previous
            batch, as in AllenNLP. If False, start from the zero state, so that the same input
            gives the same vectors.
    """

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None,
        num_output_representations: int,
        requires_grad: bool = False,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        vocab_to_cache: Sequence[str] | None = None,
        keep_sentence_boundaries: bool = False,
        scalar_mix_parameters: Sequence[float] | None = None,
        module: Any = None,  # an nn.Module with additional attributes
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        if num_output_representations < 1:
            raise ConfigError(
                f"num_output_representations must be at least 1, got {num_output_representations}."
            )
        if module is None:
            module = _ElmoBiLm(
                options_file, weight_file, requires_grad, vocab_to_cache, stateful=stateful
            )
        elif options_file is not None or weight_file is not None or not stateful:
            raise ConfigError(
                "module cannot be combined with options_file, weight_file or stateful=False."
            )
        self._elmo_lstm = module
        self._has_cached_vocab = vocab_to_cache is not None
        self._keep_sentence_boundaries = keep_sentence_boundaries
        self._dropout = nn.Dropout(p=dropout)
        self._n_mixes = num_output_representations
        for k in range(num_output_representations):
            scalar_mix = ScalarMix(
                module.num_layers,
                do_layer_norm=do_layer_norm,
                initial_scalar_parameters=scalar_mix_parameters,
                trainable=scalar_mix_parameters is None,
            )
            self.add_module(f"scalar_mix_{k}", scalar_mix)

    @property
    def _scalar_mixes(self) -> list[nn.Module]:
        return [self.get_submodule(f"scalar_mix_{k}") for k in range(self._n_mixes)]

    def get_output_dim(self) -> int:
        """Return the dimension of each representation, 2 * D."""
        return int(self._elmo_lstm.get_output_dim())

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Compute the mixed vectors of a batch.

        Args:
            inputs: Character ids from `batch_to_ids`, (B, T, 50); additional leading dimensions
                are treated as part of the batch.
            word_inputs: Indices into `vocab_to_cache`, with the shape of `inputs` without its last
                dimension, such as (B, T).

        Returns:
            `elmo_representations`, a list of tensors (B, T, 2D) with zeros for padding, and `mask`
            (B, T), True for tokens. B stands for all leading dimensions of the input.
        """
        if not isinstance(inputs, Tensor):
            raise DataError(
                f"inputs has type {type(inputs).__name__}; expected the tensor of character ids "
                "that batch_to_ids returns: elmo(batch_to_ids(sentences))."
            )
        batch_shape = inputs.shape[:-2] or inputs.shape[:1]  # a custom module may take input (B, T)
        if word_inputs is not None:
            batch_shape = word_inputs.shape[:-1]
            word_inputs = word_inputs.reshape(-1, word_inputs.shape[-1])
            if not self._has_cached_vocab:
                _log.warning("Ignoring word_inputs, because vocab_to_cache is not set.")
                word_inputs = None
        if inputs.dim() > 3:
            inputs = inputs.reshape(-1, *inputs.shape[-2:])
        output = self._elmo_lstm(inputs, word_inputs)
        layers, mask = torch.stack(list(output["activations"])), output["mask"].bool()
        representations = [scalar_mix(layers, mask) for scalar_mix in self._scalar_mixes]
        if not self._keep_sentence_boundaries:
            representations = [remove_boundaries(r, mask) for r in representations]
            mask = mask[:, 2:]
        dropped = [self._dropout(r) for r in representations]
        return {
            "elmo_representations": [r.reshape(*batch_shape, *r.shape[1:]) for r in dropped],
            "mask": mask.reshape(*batch_shape, mask.shape[1]),
        }


class ElmoTokenEmbedder(nn.Module):
    """`Elmo` with one mix and an optional projection; returns a tensor.

    Args:
        options_file: See `Elmo`. Default: `allennlp:original`.
        weight_file: See `Elmo`.
        do_layer_norm: See `Elmo`.
        dropout: See `Elmo`.
        requires_grad: See `Elmo`.
        projection_dim: The dimension of the projection. Default: no projection.
        vocab_to_cache: See `Elmo`.
        scalar_mix_parameters: See `Elmo`.
        stateful: See `Elmo`.
    """

    def __init__(
        self,
        options_file: str | Path | None = None,
        weight_file: str | Path | None = None,
        do_layer_norm: bool = False,
        dropout: float = 0.5,
        requires_grad: bool = False,
        projection_dim: int | None = None,
        vocab_to_cache: Sequence[str] | None = None,
        scalar_mix_parameters: Sequence[float] | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        if options_file is None and weight_file is None:
            options_file = DEFAULT_MODEL
        self._elmo = Elmo(
            options_file,
            weight_file,
            1,
            requires_grad=requires_grad,
            do_layer_norm=do_layer_norm,
            dropout=dropout,
            vocab_to_cache=vocab_to_cache,
            scalar_mix_parameters=scalar_mix_parameters,
            stateful=stateful,
        )
        self._projection: nn.Linear | None = None
        self.output_dim = self._elmo.get_output_dim()
        if projection_dim:
            self._projection = nn.Linear(self.output_dim, projection_dim)
            self.output_dim = projection_dim

    def get_output_dim(self) -> int:
        """Return the dimension of the vectors."""
        return self.output_dim

    def forward(self, elmo_tokens: Tensor, word_inputs: Tensor | None = None) -> Tensor:
        """Compute the vectors of a batch; see `Elmo.forward`."""
        [mixed] = self._elmo(elmo_tokens, word_inputs)["elmo_representations"]
        vectors: Tensor = mixed if self._projection is None else self._projection(mixed)
        return vectors
