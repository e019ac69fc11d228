"""AllenNLP's `ElmoLstm`: elmokit's LSTMs with a state that is carried from batch to batch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from elmokit.compat.allennlp.encoder import right_padded
from elmokit.compat.allennlp.layout import GATE_BIAS, GATES, SAME, AllenNlpModule, Layout
from elmokit.errors import DataError
from elmokit.model.bilm import BiLM
from elmokit.model.lstm import LstmState
from elmokit.model.packing import Packing


class ElmoLstm(AllenNlpModule):
    """The LSTMs of both directions. Each row of a batch starts with the last state of this row.

    Args:
        bilm: The biLM; its token encoder is not used.
        requires_grad: Whether the weights can be trained.
        stateful: Start from `_states`; otherwise they are stored but not used.

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
        lengths = right_padded(mask.bool(), "pad the rows at their end")
        packing = Packing.of(lengths.cpu().numpy())
        layers, state = self.bilm.contextualize(
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

    def parameter_layout(self) -> Iterator[tuple[str, tuple[str, ...], Layout]]:
        """See `AllenNlpModule`."""
        for i in range(self.num_layers):
            for direction in ("forward", "backward"):
                theirs, ours = f"{direction}_layer_{i}.", f"bilm.{direction}_lm.layers.{i}."
                yield theirs + "input_linearity.weight", (ours + "weight_input",), GATES
                yield theirs + "state_linearity.weight", (ours + "weight_recurrent",), GATES
                yield theirs + "state_linearity.bias", (ours + "bias",), GATE_BIAS
                if self.bilm.config.lstm.has_projection:
                    yield theirs + "state_projection.weight", (ours + "weight_projection",), SAME


def _directions(state: Tensor) -> Tensor:
    """(L, B, 2 * size) -> (2, L, B, size)."""
    return torch.stack(state.chunk(2, dim=-1))
