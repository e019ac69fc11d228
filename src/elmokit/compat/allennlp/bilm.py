"""AllenNLP's `_ElmoBiLm` and its submodules, which compute the layers of tokens."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from elmokit.compat.allennlp import layout
from elmokit.errors import ConfigError, DataError
from elmokit.model.bilm import BiLM
from elmokit.model.charcnn import CharacterEncoder
from elmokit.model.chars import BEGIN_SENTENCE, END_SENTENCE, N_CHARACTERS, char_ids_table
from elmokit.model.elmo import add_boundaries
from elmokit.model.lstm import LstmState
from elmokit.model.packing import Packing
from elmokit.sources.resolve import load_parts

_log = logging.getLogger(__name__)

# Batch size of the character encoder when a vocabulary is cached.
_CACHE_BATCH_SIZE = 512


class _ElmoCharacterEncoder(layout.AllenNlpModule):
    """Computes x_k for all tokens and both sentence boundaries from character ids.

    Args:
        encoder: The encoder to use.
        requires_grad: Whether its weights can be trained.
    """

    def __init__(self, encoder: CharacterEncoder, requires_grad: bool = False) -> None:
        super().__init__()
        self.encoder = encoder.requires_grad_(requires_grad)
        self.requires_grad = requires_grad
        projection = encoder.projection
        n_filters = encoder.config.n_filters
        self.output_dim = n_filters if projection is None else projection.out_features

    def get_output_dim(self) -> int:
        """Return the dimension of x_k, D."""
        return self.output_dim

    def forward(self, inputs: Tensor) -> dict[str, Tensor]:
        """Encode a batch.

        Args:
            inputs: Character ids (B, T, C); 0 is padding, which must be at the end of a row.

        Returns:
            `mask` (B, T + 2) and `token_embedding` (B, T + 2, D).
        """
        ids = self._check_ids(inputs)
        mask = check_mask((ids > 0).any(dim=-1), "create ids with batch_to_ids(sentences)")
        begin, end = ids.new_tensor(char_ids_table([BEGIN_SENTENCE, END_SENTENCE], ids.shape[2]))
        ids = add_boundaries(ids, mask.sum(dim=1), begin, end)  # (B, T + 2, C)
        mask = functional.pad(mask, (2, 0), value=True)
        # All padding positions have the same vector. It is computed once, as the last row of x.
        x = self.encoder(torch.cat([ids[mask], ids.new_zeros(1, ids.shape[2])]))
        indices = torch.full(mask.shape, len(x) - 1, device=ids.device)
        indices[mask] = torch.arange(len(x) - 1, device=ids.device)
        return {"mask": mask, "token_embedding": x[indices]}

    def _check_ids(self, ids: Tensor) -> Tensor:
        size = self.encoder.config.max_characters_per_token
        call = "batch_to_ids(sentences)" if size == 50 else f"elmokit.batch_ids(sentences, {size})"
        if ids.dim() != 3 or ids.shape[-1] != size or ids.is_floating_point():
            raise DataError(
                f"Expected character ids, integers of shape (batch, tokens, {size}); got "
                f"{ids.dtype} of shape {list(ids.shape)}. Create them with {call}."
            )
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < N_CHARACTERS:
            raise DataError(
                f"Character ids must be between 0 and {N_CHARACTERS - 1}; got {int(ids.min())} "
                f"to {int(ids.max())}. Create them with {call}."
            )
        return ids.long()

    def parameter_layout(self) -> layout.ParameterLayout:
        """Return the layout of all parameters; see `AllenNlpModule`."""
        config = self.encoder.config
        yield "_char_embedding_weights", ("encoder.char_embed",), layout.CHARACTERS
        for i in range(len(config.filters)):
            yield from _linear(f"char_conv_{i}", [f"encoder.convolutions.{i}"], layout.SAME)
        for i in range(config.n_highway):
            names = [f"encoder.highways.{i}.{name}" for name in ("transform", "carry")]
            yield from _linear(f"_highways._layers.{i}", names, layout.HIGHWAY)
        if self.encoder.projection is not None:
            yield from _linear("_projection", ["encoder.projection"], layout.SAME)


def _linear(name: str, modules: Sequence[str], stored: layout.Layout) -> layout.ParameterLayout:
    """Return the layouts of the weight and the bias of a module."""
    for kind in ("weight", "bias"):
        yield f"{name}.{kind}", tuple(f"{module}.{kind}" for module in modules), stored


class ElmoLstm(layout.AllenNlpModule):
    """The LSTMs of both directions. The state is carried from one batch to the next.

    Args:
        bilm: The biLM. Its token encoder is not used.
        requires_grad: Whether the weights can be trained.
        stateful: Start each row from the final state of the same row in the previous batch (see
            `_states`). Otherwise, start from the zero state.

    Attributes:
        _states: The final states of the rows: hidden (L, rows, 2D) and memory (L, rows, 2H),
            forward before backward; None before the first batch. Not part of the `state_dict`.
    """

    def __init__(self, bilm: BiLM, requires_grad: bool = False, stateful: bool = True) -> None:
        super().__init__()
        config = bilm.config.lstm
        self.bilm = bilm.requires_grad_(requires_grad)
        self.requires_grad = requires_grad
        self.stateful = stateful
        self._states: tuple[Tensor, Tensor] | None = None
        self.input_size = self.hidden_size = config.projection_dim
        self.cell_size = config.dim
        self.num_layers = config.n_layers

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Compute the layers of a batch.

        Shape:
            inputs (B, T, D), mask (B, T) -> (L, B, T, 2D)
        """
        lengths = mask.sum(dim=1)
        packing = Packing.of(lengths.cpu().numpy())
        layers, state = self.bilm.contextualize(
            packing.pack(inputs), packing, self._initial_state(len(lengths), inputs)
        )
        self._store_state(state)
        outputs = packing.unpack(layers[1:])
        return functional.pad(outputs, (0, 0, 0, mask.shape[1] - outputs.shape[2]))

    def reset_states(self, mask: Tensor | None = None) -> None:
        """Reset the states to zero.

        Args:
            mask: Shape (rows,), True for rows to reset. Default: all rows.
        """
        if mask is None or self._states is None:
            self._states = None
            return
        hidden, memory = self._states
        if mask.shape != hidden.shape[1:2]:
            raise DataError(
                f"The mask has shape {list(mask.shape)}; expected "
                f"[{hidden.shape[1]}], the number of rows of the state."
            )
        reset = mask.bool().view(1, -1, 1).to(hidden.device)
        self._states = (hidden.masked_fill(reset, 0), memory.masked_fill(reset, 0))

    def _initial_state(self, rows: int, like: Tensor) -> LstmState | None:
        if not self.stateful or self._states is None:
            return None
        # `pad` crops states with more rows than the batch. It always copies, which is necessary
        # because tensors created in inference mode cannot be part of an autograd graph.
        hidden, memory = (
            functional.pad(state.to(like), (0, 0, 0, rows - state.shape[1]))
            for state in self._states
        )
        return LstmState(cell=_split_directions(memory), hidden=_split_directions(hidden))

    def _store_state(self, state: LstmState) -> None:
        hidden, cell = (
            torch.cat(tensor.detach().unbind(), -1) for tensor in (state.hidden, state.cell)
        )
        if self._states is not None:  # rows beyond the size of this batch keep their states
            rows = hidden.shape[1]
            hidden, cell = (
                torch.cat([new, old.to(new)[:, rows:]], dim=1)
                for new, old in zip((hidden, cell), self._states, strict=True)
            )
        self._states = (hidden, cell)

    def parameter_layout(self) -> layout.ParameterLayout:
        """Return the layout of all parameters; see `AllenNlpModule`."""
        for i, direction in product(range(self.num_layers), ("forward", "backward")):
            prefix, name = f"bilm.{direction}_lm.layers.{i}.", f"{direction}_layer_{i}."
            yield name + "input_linearity.weight", (prefix + "weight_input",), layout.GATES
            yield name + "state_linearity.weight", (prefix + "weight_recurrent",), layout.GATES
            yield name + "state_linearity.bias", (prefix + "bias",), layout.GATE_BIAS
            if self.bilm.config.lstm.has_projection:
                yield name + "state_projection.weight", (prefix + "weight_projection",), layout.SAME


def _split_directions(state: Tensor) -> Tensor:
    """Split a state into directions: (L, B, 2 * size) -> (2, L, B, size)."""
    return torch.stack(state.chunk(2, dim=-1))


class _ElmoBiLm(nn.Module):
    """Computes all layers for all tokens and both sentence boundaries.

    Args:
        options_file: The `options.json` file, or anything that `elmokit.load` accepts.
        weight_file: The HDF5 file.
        requires_grad: Whether the weights can be trained.
        vocab_to_cache: Words to encode in advance, for `word_inputs`. The first word is the
            padding token.
        stateful: See `ElmoLstm`.
    """

    def __init__(
        self,
        options_file: str | Path | None,
        weight_file: str | Path | None = None,
        requires_grad: bool = False,
        vocab_to_cache: Sequence[str] | None = None,
        *,
        stateful: bool = True,
    ) -> None:
        super().__init__()
        if options_file is None and weight_file is None:
            raise ConfigError("options_file and weight_file are both None. Specify a model.")
        bilm = load_parts(options_file, weight_file).bilm
        if not isinstance(bilm.encoder, CharacterEncoder):
            raise ConfigError(
                "AllenNLP's classes require a model with character ids as input, unlike "
                f"{options_file or weight_file}. Use elmokit.load and elmokit.Elmo instead."
            )
        self._requires_grad = requires_grad
        self._token_embedder = _ElmoCharacterEncoder(bilm.encoder, requires_grad)
        del bilm.encoder  # otherwise, its parameters would be registered twice
        self._word_embedding: nn.Embedding | None = None
        self._bos_embedding: Tensor | None = None
        self._eos_embedding: Tensor | None = None
        if vocab_to_cache:
            if requires_grad:
                _log.warning(
                    "The cached vectors of vocab_to_cache are trained independently of the "
                    "character CNN, so they will diverge from its output."
                )
            self.create_cached_cnn_embeddings(vocab_to_cache)
        self._elmo_lstm = ElmoLstm(bilm, requires_grad, stateful)
        self.num_layers = bilm.config.n_layers

    def get_output_dim(self) -> int:
        """Return the dimension of a layer, 2 * D."""
        return 2 * self._elmo_lstm.hidden_size

    def create_cached_cnn_embeddings(self, tokens: Sequence[str]) -> None:
        """Encode and cache the vocabulary that `word_inputs` indexes. Index 0 is padding."""
        encoder = self._token_embedder.encoder
        words = [BEGIN_SENTENCE, END_SENTENCE, *tokens]
        ids = torch.from_numpy(char_ids_table(words, encoder.config.max_characters_per_token))
        ids = ids.to(encoder.char_embed.device)
        with torch.inference_mode(False), torch.no_grad():
            vectors = torch.cat([encoder(batch) for batch in torch.split(ids, _CACHE_BATCH_SIZE)])
            self._bos_embedding, self._eos_embedding = vectors[0], vectors[1]
            table = vectors[2:].clone()
            table[0] = 0
        self._word_embedding = nn.Embedding(
            len(table), table.shape[1], padding_idx=0, _weight=table
        )
        self._word_embedding.requires_grad_(self._requires_grad)

    def forward(self, inputs: Tensor, word_inputs: Tensor | None = None) -> dict[str, Any]:
        """Compute the layers of a batch.

        Args:
            inputs: Character ids (B, T, C). Ignored if `word_inputs` is used.
            word_inputs: Indices into `vocab_to_cache` (B, T). If any of them is out of range,
                `inputs` is used instead.

        Returns:
            `activations`, a list of L + 1 tensors (B, T + 2, 2D), and `mask` (B, T + 2).
        """
        encoded = None if word_inputs is None else self._look_up(word_inputs)
        if encoded is None:
            encoded = self._token_embedder(inputs)
        x, mask = encoded["token_embedding"], encoded["mask"]
        layers: Tensor = self._elmo_lstm(x, mask)
        layer_0 = torch.cat([x, x], dim=-1) * mask.unsqueeze(-1)  # h_{k,0} = [x_k; x_k]
        return {"activations": [layer_0, *layers.unbind()], "mask": mask}

    def _look_up(self, words: Tensor) -> dict[str, Tensor] | None:
        table, bos, eos = self._word_embedding, self._bos_embedding, self._eos_embedding
        if table is None or bos is None or eos is None:
            return None
        if words.numel() and not 0 <= int(words.min()) <= int(words.max()) < table.num_embeddings:
            return None
        mask = check_mask(
            words > 0,
            "index 0 of vocab_to_cache means padding, so the first word must not be in a sentence",
        )
        x: Tensor = table(words.long())
        x = add_boundaries(x, mask.sum(dim=1), bos.to(x), eos.to(x))
        return {"mask": functional.pad(mask, (2, 0), value=True), "token_embedding": x}


def check_mask(mask: Tensor, hint: str) -> Tensor:
    """Return a mask (B, T) unchanged. Raise an error if padding precedes a token.

    Args:
        mask: The mask.
        hint: How to fix the problem, for the error message.
    """
    is_invalid = (mask[:, 1:] & ~mask[:, :-1]).any(dim=1)
    if is_invalid.any():
        raise DataError(
            f"Row {int(is_invalid.nonzero()[0, 0])} of the batch has padding before a token, for "
            "which AllenNLP returns wrong vectors. Padding must be at the end of a row: "
            f"{hint}."
        )
    return mask
