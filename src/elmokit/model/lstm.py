"""The LSTM of the biLM, which has a projection and clips its cell states and outputs.

For token k, with the input x_k and the previous state (c_{k-1}, r_{k-1}), a layer computes:

    i, j, f, o = W_x x_k + W_r r_{k-1} + b          input, candidate, forget, output
    c_k = clip(sigmoid(f + 1) * c_{k-1} + sigmoid(i) * tanh(j), cell_clip)
    r_k = clip(W_p (sigmoid(o) * tanh(c_k)), proj_clip)
    h_k = r_k            in the first layer
    h_k = r_k + x_k      in the other layers, if the model has skip connections

The state is (c, r), without the skip connection. The +1 of the forget gate is part of the
computation and not of the stored bias. Otherwise, weights could not be converted exactly, because
(b + 1) - 1 is not always equal to b. If a projection would not reduce the dimension, the model has
no projection, and r_k = sigmoid(o) * tanh(c_k), without clipping.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from elmokit.config import LstmConfig
from elmokit.model.packing import step_chunks

FORGET_BIAS = 1.0

# Maximum number of tokens for which W_x x is computed at once, to limit memory usage.
_TOKENS_AT_ONCE = 2048


class LstmState(NamedTuple):
    """The LSTM states of a batch. The next call can continue from them.

    Attributes:
        cell: c, shape (2 directions, L, B, H).
        hidden: r, shape (2 directions, L, B, D).
    """

    cell: Tensor
    hidden: Tensor

    @classmethod
    def zeros(cls, config: LstmConfig, rows: int, *, like: Tensor) -> LstmState:
        """Return the zero state."""
        size = (2, config.n_layers, rows)
        cell = torch.zeros(*size, config.dim, dtype=like.dtype, device=like.device)
        hidden = torch.zeros(*size, config.projection_dim, dtype=like.dtype, device=like.device)
        return cls(cell, hidden)

    def select(self, rows: Tensor) -> LstmState:
        """Return the states of the given rows."""
        return LstmState(self.cell[:, :, rows], self.hidden[:, :, rows])

    def expand(self, rows: int) -> LstmState:
        """Repeat the state of a single row."""
        return LstmState(*(s.expand(-1, -1, rows, -1).contiguous() for s in self))


class LstmLayer(nn.Module):
    """One layer of one direction, for packed batches (see `packing.py`)."""

    def __init__(self, config: LstmConfig) -> None:
        super().__init__()
        self.config = config
        h, d = config.dim, config.projection_dim
        self.weight_input = nn.Parameter(torch.empty(4 * h, d))
        self.weight_recurrent = nn.Parameter(torch.empty(4 * h, d))
        self.bias = nn.Parameter(torch.zeros(4 * h))
        self.weight_projection: nn.Parameter | None = None
        # As in bilm-tf, [W_x; W_r] is initialized as a single Glorot-uniform matrix.
        bound = (6.0 / (2 * d + 4 * h)) ** 0.5
        nn.init.uniform_(self.weight_input, -bound, bound)
        nn.init.uniform_(self.weight_recurrent, -bound, bound)
        if config.has_projection:
            self.weight_projection = nn.Parameter(torch.empty(d, h))
            nn.init.xavier_uniform_(self.weight_projection)

    def step(self, gates_x: Tensor, cell: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Process one token of each sentence.

        Shape:
            gates_x (n, 4H) = W_x x_k + b, cell (n, H), hidden (n, D) -> c_k (n, H), r_k (n, D)
        """
        gates = torch.addmm(gates_x, hidden, self.weight_recurrent.t())  # (n, 4H)
        i, j, f, o = gates.chunk(4, dim=-1)
        cell = torch.sigmoid(f + FORGET_BIAS) * cell + torch.sigmoid(i) * torch.tanh(j)
        cell = _clip(cell, self.config.cell_clip)
        hidden = torch.sigmoid(o) * torch.tanh(cell)
        if self.weight_projection is not None:
            hidden = _clip(F.linear(hidden, self.weight_projection), self.config.proj_clip)
        return cell, hidden

    def forward(
        self,
        x: Tensor,
        active: list[int],
        cell: Tensor,
        hidden: Tensor,
        starts: Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Process a packed batch from left to right.

        Shape:
            x (N, D), cell (B, H), hidden (B, D), starts (N,)
            -> outputs r (N, D), last cell (B, H), last hidden (B, D)

        `starts` is True for tokens before which the state is reset.
        """
        outputs: list[Tensor] = []
        ended: list[tuple[Tensor, Tensor]] = []  # states of finished sentences
        start = 0
        for steps in step_chunks(active, _TOKENS_AT_ONCE):
            stop = start + sum(steps)
            gates_x = F.linear(x[start:stop], self.weight_input, self.bias)  # (tokens, 4H)
            for n, step_gates in zip(steps, torch.split(gates_x, steps), strict=True):
                if n < len(cell):
                    ended.append((cell[n:], hidden[n:]))
                    cell, hidden = cell[:n], hidden[:n]
                if starts is not None:
                    is_reset = starts[start : start + n].unsqueeze(1)
                    cell, hidden = (
                        cell.masked_fill(is_reset, 0.0),
                        hidden.masked_fill(is_reset, 0.0),
                    )
                cell, hidden = self.step(step_gates, cell, hidden)
                outputs.append(hidden)
                start += n
        for ended_cell, ended_hidden in reversed(ended):
            cell = torch.cat([cell, ended_cell])
            hidden = torch.cat([hidden, ended_hidden])
        return torch.cat(outputs) if outputs else x[:0], cell, hidden


class LstmStack(nn.Module):
    """The L layers of one direction."""

    def __init__(self, config: LstmConfig, dropout: float = 0.0) -> None:
        super().__init__()
        self.config = config
        self.dropout = dropout
        self.layers = nn.ModuleList(LstmLayer(config) for _ in range(config.n_layers))

    def forward(
        self,
        x: Tensor,
        active: list[int],
        cell: Tensor,
        hidden: Tensor,
        starts: Tensor | None = None,
    ) -> tuple[list[Tensor], Tensor, Tensor]:
        """Run all layers on a packed batch.

        Shape:
            x (N, D), cell (L, B, H), hidden (L, B, D), starts (N,)
            -> the outputs of the L layers, (N, D) each, last cell (L, B, H), last hidden (L, B, D)
        """
        outputs: list[Tensor] = []
        cells: list[Tensor] = []
        hiddens: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            # As in bilm-tf, the skip connection adds the input after dropout.
            x = F.dropout(x, self.dropout, self.training)
            r, last_cell, last_hidden = layer(x, active, cell[index], hidden[index], starts)
            x = r + x if index > 0 and self.config.use_skip_connections else r
            outputs.append(x)
            cells.append(last_cell)
            hiddens.append(last_hidden)
        return outputs, torch.stack(cells), torch.stack(hiddens)


def _clip(x: Tensor, limit: float | None) -> Tensor:
    return x if limit is None else x.clamp(-limit, limit)
