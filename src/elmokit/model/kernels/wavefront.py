"""Run all layers and both directions of the LSTMs in parallel, for training on streams.

Layer j can process a token as soon as layer j - 1 has processed it. The layers therefore run as a
wavefront: in slot s, layer j of both directions processes step s - j. There are 2L LSTMs, one per
layer and direction, with the index g = 2 * layer + direction. All LSTMs that are active in a slot
share four batched matrix products: [x_k; r_{k-1}] times [W_x; W_r], the projection, and the
gradients of both. Each weight gradient is a single product over all slots. The Triton kernels of
`pointwise.py` run between the products.

    slot        0     1     2    ...   T - 1    T          G = 2L LSTMs
    layer 0    t_1   t_2   t_3          t_T                S = T + L - 1 slots
    layer 1          t_1   t_2         t_{T-1}  t_T

The reference implementation is `elmokit.model.lstm.LstmStack`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from elmokit.config import LstmConfig
from elmokit.model.bilm import BiLM
from elmokit.model.kernels import pointwise as kernels

_BLOCK = 1024
# The fastest block shapes of the cell kernels on an H200.
_FORWARD_ROWS, _FORWARD_COLS = 8, 128
_BACKWARD_COLS = 512


class StackedWeights(NamedTuple):
    """The weights of all LSTMs (or their gradients or moving averages), one tensor per parameter.

    Attributes:
        gates: [W_x, W_r], shape (G, 4H, 2D).
        bias: b, shape (G, 4H).
        projection: W_p, shape (G, D, H).
    """

    gates: Tensor
    bias: Tensor
    projection: Tensor

    @classmethod
    def zeros(
        cls, config: LstmConfig, device: torch.device, dtype: torch.dtype = torch.float32
    ) -> StackedWeights:
        """Return tensors of zeros for a configuration. The bias is always float32."""
        h, d, g = config.dim, config.projection_dim, 2 * config.n_layers
        return cls(
            gates=torch.zeros(g, 4 * h, 2 * d, dtype=dtype, device=device),
            bias=torch.zeros(g, 4 * h, device=device),
            projection=torch.zeros(g, d, h, dtype=dtype, device=device),
        )

    @classmethod
    def from_bilm(cls, bilm: BiLM) -> StackedWeights:
        """Move the LSTM weights of a biLM into stacked tensors.

        The parameters of the biLM become views of these tensors, so both always have the same
        values.
        """
        stacked = cls.zeros(bilm.config.lstm, next(bilm.parameters()).device)
        parameters = dict(bilm.named_parameters())
        for name, view in stacked.by_parameter().items():
            view.copy_(parameters[name].data)
            parameters[name].data = view
        return stacked

    def by_parameter(self) -> dict[str, Tensor]:
        """Return a view for each LSTM parameter of a biLM, by parameter name."""
        d = self.gates.shape[2] // 2
        views = {}
        for g in range(len(self.gates)):
            name = f"{('forward_lm', 'backward_lm')[g % 2]}.layers.{g // 2}."
            views[name + "weight_input"] = self.gates[g, :, :d]
            views[name + "weight_recurrent"] = self.gates[g, :, d:]
            views[name + "bias"] = self.bias[g]
            views[name + "weight_projection"] = self.projection[g]
        return views


class Wavefront:
    """The buffers for one batch shape, and the forward and backward passes that use them.

    Args:
        config: The configuration of the LSTMs, which must have a projection.
        rows: Number of rows, B.
        steps: Number of steps, T.
        dropout: Dropout rate for the input of each layer and for the output of the top layer.
        dtype: Data type of matrix products and stored values; bfloat16 on a GPU.
        device: The device.
    """

    def __init__(
        self,
        config: LstmConfig,
        rows: int,
        steps: int,
        *,
        dropout: float,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.config = config
        self.rows, self.steps, self.dropout = rows, steps, dropout
        h, d, n_layers = config.dim, config.projection_dim, config.n_layers
        self.n_lstms, self.slots = 2 * n_layers, steps + n_layers - 1
        g, s = self.n_lstms, self.slots

        def buffer(*size: int, dtype: torch.dtype = dtype) -> Tensor:
            return torch.zeros(*size, dtype=dtype, device=device)

        self.gates_weight = buffer(g, 4 * h, 2 * d)
        self.bias = buffer(g, 4 * h, dtype=torch.float32)
        self.projection_weight = buffer(g, d, h)
        self.inputs = buffer(g, s + 1, rows, 2 * d)
        self.gates = buffer(g, s, rows, 4 * h)
        self.cells = buffer(g, s + 1, rows, h, dtype=torch.float32)
        self.hidden = buffer(g, s, rows, h)
        self.projected = buffer(g, s, rows, d)
        self.out = buffer(2, steps, rows, d)
        self.starts = buffer(2, steps, rows, dtype=torch.uint8)
        self.seed = buffer(1, dtype=torch.int64)
        self.d_out = buffer(2, steps, rows, d)
        self.d_inputs = buffer(g, s + 1, rows, 2 * d)
        self.d_output = buffer(g, 2, rows, d)
        self.d_hidden = buffer(g, rows, h)
        self.d_cell = buffer(g, rows, h, dtype=torch.float32)
        # Rows per program in the backward cell kernel. If the batch has few rows, each program
        # processes fewer rows, because otherwise half of the GPU would be idle.
        self.backward_blocks = 32 if rows >= 512 else 8
        blocks = triton.cdiv(rows, self.backward_blocks)
        self.d_bias = buffer(g, blocks, 4 * h, dtype=torch.float32)
        # The GPU's approximate tanh is at least as precise as bfloat16.
        self.fast_tanh = device.type == "cuda" and dtype == torch.bfloat16

    def weights(self) -> StackedWeights:
        """Return the weights, in the data type of the matrix products."""
        return StackedWeights(self.gates_weight, self.bias, self.projection_weight)

    def load_weights(self, weights: StackedWeights) -> None:
        """Set the weights, and convert them to the data type of the matrix products."""
        for target, source in zip(self.weights(), weights, strict=True):
            target.copy_(source)

    def load_state(self, cell: Tensor, hidden: Tensor) -> None:
        """Set the initial state of the rows: cell (G, B, H), hidden (G, B, D)."""
        carry = (1 - self.starts[:, 0].to(hidden.dtype)).unsqueeze(-1)  # (2, B, 1)
        for layer in range(self.config.n_layers):
            pair = slice(2 * layer, 2 * layer + 2)
            self.cells[pair, layer].copy_(cell[pair])
            d = self.config.projection_dim
            self.inputs[pair, layer, :, d:].copy_(hidden[pair] * carry)

    def state(self) -> tuple[Tensor, Tensor]:
        """Return the state of the rows after the last step: cell (G, B, H), hidden (G, B, D)."""
        d, t = self.config.projection_dim, self.steps
        layers = range(self.config.n_layers)
        cell = torch.cat([self.cells[2 * j : 2 * j + 2, t + j] for j in layers])
        hidden = torch.cat([self.inputs[2 * j : 2 * j + 2, t + j, :, d:] for j in layers])
        return cell, hidden

    def _active(self, slot: int) -> slice:
        """Return the range of LSTMs that are active in a slot."""
        bottom = max(0, slot - self.steps + 1)
        top = min(self.config.n_layers - 1, slot)
        return slice(2 * bottom, 2 * top + 2)

    def _sizes(self, g: slice, slot: int) -> tuple[Any, ...]:
        return g.start, slot, self.slots, self.rows, self.steps

    def _cell_options(self) -> dict[str, Any]:
        return {
            "H": self.config.dim,
            "CLIP": float(self.config.cell_clip or 0.0),
            "FAST": self.fast_tanh,
        }

    def _output_options(self) -> dict[str, Any]:
        return {
            "D": self.config.projection_dim,
            "CLIP": float(self.config.proj_clip or 0.0),
            "SKIP": self.config.use_skip_connections,
            "DROP": self.dropout > 0,
            "BLOCK": _BLOCK,
        }

    def _run_forward(self) -> None:
        h, d = self.config.dim, self.config.projection_dim
        for slot in range(self.slots):
            g = self._active(slot)
            torch.bmm(
                self.inputs[g, slot],
                self.gates_weight[g].transpose(1, 2),
                out=self.gates[g, slot],
            )
            rows, cols = _FORWARD_ROWS, _FORWARD_COLS
            grid = (triton.cdiv(self.rows, rows), triton.cdiv(h, cols), g.stop - g.start)
            kernels.cell_forward[grid](
                self.gates,
                self.bias,
                self.cells,
                self.hidden,
                self.starts,
                *self._sizes(g, slot),
                ROWS=rows,
                COLS=cols,
                **self._cell_options(),
            )
            torch.bmm(
                self.hidden[g, slot],
                self.projection_weight[g].transpose(1, 2),
                out=self.projected[g, slot],
            )
            kernels.output_forward[(triton.cdiv(self.rows * d, _BLOCK), g.stop - g.start)](
                self.projected,
                self.inputs,
                self.out,
                self.starts,
                self.seed,
                *self._sizes(g, slot),
                self.config.n_layers,
                self.dropout,
                **self._output_options(),
            )

    def _run_backward(self) -> None:
        h, d = self.config.dim, self.config.projection_dim
        for slot in reversed(range(self.slots)):
            g = self._active(slot)
            kernels.output_backward[(triton.cdiv(self.rows * d, _BLOCK), g.stop - g.start)](
                self.d_out,
                self.d_inputs,
                self.d_output,
                self.projected,
                self.starts,
                self.seed,
                *self._sizes(g, slot),
                self.config.n_layers,
                self.dropout,
                **self._output_options(),
            )
            torch.bmm(self.projected[g, slot], self.projection_weight[g], out=self.d_hidden[g])
            blocks, cols = self.backward_blocks, _BACKWARD_COLS
            grid = (triton.cdiv(self.rows, blocks), triton.cdiv(h, cols), g.stop - g.start)
            kernels.cell_backward[grid](
                self.gates,
                self.bias,
                self.cells,
                self.d_hidden,
                self.d_cell,
                self.d_bias,
                self.starts,
                *self._sizes(g, slot),
                BLOCKS=blocks,
                ROWS=1,
                COLS=cols,
                **self._cell_options(),
            )
            torch.bmm(self.gates[g, slot], self.gates_weight[g], out=self.d_inputs[g, slot])

    def _weight_gradients(self, gradients: StackedWeights) -> None:
        """Compute each weight gradient as one product over all slots."""
        t = self.steps
        for layer in range(self.config.n_layers):
            pair, slots = slice(2 * layer, 2 * layer + 2), slice(layer, layer + t)
            d_gates = self.gates[pair, slots].flatten(1, 2)  # (2, T B, 4H)
            inputs = self.inputs[pair, slots].flatten(1, 2)  # (2, T B, 2D)
            _product(d_gates.transpose(1, 2), inputs, gradients.gates[pair])
            d_projected = self.projected[pair, slots].flatten(1, 2)  # (2, T B, D)
            hidden = self.hidden[pair, slots].flatten(1, 2)  # (2, T B, H)
            _product(d_projected.transpose(1, 2), hidden, gradients.projection[pair])
        torch.sum(self.d_bias, dim=1, out=gradients.bias)

    def forward(self, types: Tensor, index: Tensor) -> Tensor:
        """Process T tokens of each row in both directions.

        Before the call, set the weights, the state, `starts` and `seed`.

        Args:
            types: x_k of the distinct words of the batch, shape (U, D).
            index: The index of the word at each position, shape (2, T, B). The tokens of
                direction 1 must already be reversed.

        Returns:
            The top layer of both directions, after dropout, shape (2, T, B, D). The next call
            overwrites this tensor.
        """
        self._gather(kernels.gather_forward, types.contiguous(), index, self.inputs)
        self._run_forward()
        return self.out

    def backward(
        self, d_out: Tensor, index: Tensor, n_types: int, gradients: StackedWeights
    ) -> Tensor:
        """Compute the gradients for the last call of `forward`.

        Args:
            d_out: The gradient of the result of `forward`, shape (2, T, B, D).
            index: The `index` that was passed to `forward`.
            n_types: Number of distinct words, U.
            gradients: The gradients of the weights are written to these tensors.

        Returns:
            The gradient of `types`, shape (U, D), in float32.
        """
        self.d_out.copy_(d_out)
        self._run_backward()
        self._weight_gradients(gradients)
        d_x = torch.empty_like(self.d_out, dtype=torch.float32)
        self._gather(kernels.gather_backward, self.d_inputs, d_x)
        d_types = d_x.new_zeros(n_types, d_x.shape[-1])
        return d_types.index_add_(0, index.flatten(), d_x.flatten(0, 2))

    def _gather(self, kernel: Any, *tensors: Tensor) -> None:
        d = self.config.projection_dim
        kernel[(triton.cdiv(self.rows * d, _BLOCK), self.steps, 2)](
            *tensors,
            self.seed,
            self.slots,
            self.rows,
            self.steps,
            self.dropout,
            D=d,
            DROP=self.dropout > 0,
            BLOCK=_BLOCK,
        )


def _product(a: Tensor, b: Tensor, out: Tensor) -> None:
    """Write the batched product a @ b to `out`, without a copy if the data types are equal."""
    if out.dtype == a.dtype:
        torch.bmm(a, b, out=out)
    else:
        out.copy_(torch.bmm(a, b))
