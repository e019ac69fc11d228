"""AllenNLP's `ElmoLstm`: elmokit's LSTMs with AllenNLP's weights and carried states."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from elmokit.compat.allennlp.layout import Mirror, Translation, gate_bias, gates, same
from elmokit.compat.allennlp.padding import right_padded
from elmokit.config import BiLMConfig, LstmConfig
from elmokit.errors import DataError
from elmokit.model.bilm import BiLM
from elmokit.model.blank import blank
from elmokit.model.lstm import LstmState
from elmokit.model.packing import Packing


class LstmCellWithProjection(nn.Module):
    """Holds the weights of one layer of one direction."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        d, h = config.projection_dim, config.dim
        self.input_linearity = nn.Linear(d, 4 * h, bias=False)
        self.state_linearity = nn.Linear(d, 4 * h, bias=True)
        if config.has_projection:
            self.state_projection = nn.Linear(h, d, bias=False)


class ElmoLstm(Mirror[BiLM]):
    """The LSTMs of both directions. Each row of a batch starts with the last state of this row.

    Args:
        bilm: The biLM whose weights to copy.
        requires_grad: Whether they can be trained.
        stateful: Start from `_states`; otherwise they are stored but not used.

    Attributes:
        _states: The final states of the rows: hidden (L, rows, 2D) and memory (L, rows, 2H),
            forward before backward; None before the first batch. Not part of the `state_dict`.
    """

    def __init__(self, bilm: BiLM, requires_grad: bool = False, stateful: bool = True) -> None:
        super().__init__()
        self.config = config = bilm.config.lstm
        self.requires_grad = requires_grad
        self.stateful = stateful
        self._states: tuple[Tensor, Tensor] | None = None
        self.input_size = self.hidden_size = config.projection_dim
        self.cell_size = config.dim
        self.num_layers = config.n_layers
        with blank():
            for i in range(config.n_layers):
                self.add_module(f"forward_layer_{i}", LstmCellWithProjection(config))
                self.add_module(f"backward_layer_{i}", LstmCellWithProjection(config))
        self._copy_weights(bilm, requires_grad)

    @property
    def forward_layers(self) -> list[nn.Module]:
        """The layers of the forward direction."""
        return [self.get_submodule(f"forward_layer_{i}") for i in range(self.num_layers)]

    @property
    def backward_layers(self) -> list[nn.Module]:
        """The layers of the backward direction."""
        return [self.get_submodule(f"backward_layer_{i}") for i in range(self.num_layers)]

    def forward(self, inputs: Tensor, mask: Tensor) -> Tensor:
        """Compute the layers of a batch.

        Shape:
            inputs (B, T, D), mask (B, T) -> (L, B, T, 2D)
        """
        lengths = right_padded(mask.bool(), "pad the rows at their end")
        packing = Packing.of(lengths.cpu().numpy())
        layers, state = self.ours().contextualize(
            packing.pack(inputs), packing, self._start(len(lengths), inputs)
        )
        self._keep(state)
        outputs = packing.unpack(layers[1:])
        return nn.functional.pad(outputs, (0, 0, 0, mask.shape[1] - outputs.shape[2]))

    def reset_states(self, mask: Tensor | None = None) -> None:
        """Reset the states to zero.

        Args:
            mask: The rows to reset, shape (rows,), True = reset; None resets all.
        """
        if mask is None or self._states is None:
            self._states = None
            return
        hidden, memory = self._states
        if mask.shape != hidden.shape[1:2]:
            raise DataError(
                f"The mask of rows to reset has shape {list(mask.shape)}; expected "
                f"[{hidden.shape[1]}], the number of rows of the state."
            )
        reset = mask.bool().view(1, -1, 1)
        self._states = (
            hidden.masked_fill(reset.to(hidden.device), 0),
            memory.masked_fill(reset.to(memory.device), 0),
        )

    def _start(self, rows: int, like: Tensor) -> LstmState | None:
        if not self.stateful or self._states is None:
            return None
        known = [state.to(like)[:, :rows] for state in self._states]
        new = rows - known[0].shape[1]
        hidden, memory = (nn.functional.pad(state, (0, 0, 0, new)) for state in known)
        # New tensors, because tensors of inference mode cannot be part of a graph.
        return LstmState(cell=_directions(memory), hidden=_directions(hidden))

    def _keep(self, state: LstmState) -> None:
        hidden, cell = (
            torch.cat(part.detach().unbind(), -1) for part in (state.hidden, state.cell)
        )
        if self._states is not None:  # keep the states of rows that this batch does not have
            rows = hidden.shape[1]
            hidden, cell = (
                torch.cat([new, old.to(new)[:, rows:]], dim=1)
                for new, old in zip((hidden, cell), self._states, strict=True)
            )
        self._states = (hidden, cell)

    def _skeleton(self) -> BiLM:
        # Token vectors are computed elsewhere, so the token encoder is not used.
        return BiLM(BiLMConfig(self.config, None, n_words=1))

    def _translations(self) -> Iterator[Translation]:
        for direction in ("forward", "backward"):
            for i in range(self.num_layers):
                theirs, ours = f"{direction}_layer_{i}.", f"{direction}_lm.layers.{i}."
                yield gates(theirs + "input_linearity.weight", ours + "weight_input")
                yield gates(theirs + "state_linearity.weight", ours + "weight_recurrent")
                yield gate_bias(theirs + "state_linearity.bias", ours + "bias")
                if self.config.has_projection:
                    yield same(theirs + "state_projection.weight", ours + "weight_projection")


def _directions(state: Tensor) -> Tensor:
    """(L, B, 2 * size) -> (2, L, B, size)."""
    return torch.stack(state.chunk(2, dim=-1))
