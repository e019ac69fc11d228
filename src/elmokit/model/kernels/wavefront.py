"""Both directions and all layers of the LSTMs at once, for training on streams.

Layer j can read token k as soon as layer j - 1 has, so the layers run as a wave: in slot s, layer j
of both directions stands on token s - j. The 2L stacks g = 2 * layer + direction that are active in
a slot are one batched matrix product, [x_k; r_{k-1}] times [W_x; W_r], and one each for the
projection and for the two gradients; the weights' gradients are single products over all slots.
Between the products stand the Triton kernels of `pointwise.py`.

    slot        0     1     2    ...   T - 1    T          G = 2L stacks
    layer 0    t_1   t_2   t_3          t_T                S = T + L - 1 slots
    layer 1          t_1   t_2         t_{T-1}  t_T

The plain twin is `elmokit.model.lstm.LstmStack`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from elmokit.config import LstmConfig
from elmokit.model.kernels import pointwise as kernels
from elmokit.model.lstm import LstmLayer, LstmStack

_BLOCK = 1024
_ROWS, _COLS, _BLOCKS = 8, 128, 8


class StackedWeights(NamedTuple):
    """The weights of all stacks, stacked: g = 2 * layer + direction.

    Attributes:
        gates: [W_x, W_r], shape (G, 4H, 2D).
        bias: b, shape (G, 4H).
        projection: W_p, shape (G, D, H).
    """

    gates: Tensor
    bias: Tensor
    projection: Tensor

    @classmethod
    def of(cls, forward_lm: LstmStack, backward_lm: LstmStack) -> StackedWeights:
        """Stack the weights of the plain modules; gradients flow back to them."""
        layers: list[LstmLayer] = []
        for pair in zip(forward_lm.layers, backward_lm.layers, strict=True):
            for layer in pair:
                assert isinstance(layer, LstmLayer)
                layers.append(layer)
        projections: list[Tensor] = []
        for layer in layers:
            assert layer.weight_projection is not None
            projections.append(layer.weight_projection)
        return cls(
            torch.stack([torch.cat([p.weight_input, p.weight_recurrent], 1) for p in layers]),
            torch.stack([p.bias for p in layers]),
            torch.stack(projections),
        )


class Wavefront:
    """The buffers of one batch shape and the two passes over them.

    Args:
        config: Shape of the LSTMs; they must have a projection.
        rows: B.
        steps: T.
        dropout: On the input of each layer and on the top output.
        dtype: Of products and stored values; bfloat16 on a GPU.
        graphs: Capture both passes as CUDA graphs.
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
        graphs: bool = True,
    ) -> None:
        self.config = config
        self.rows, self.steps, self.dropout = rows, steps, dropout
        h, d, n_layers = config.dim, config.projection_dim, config.n_layers
        self.stacks, self.slots = 2 * n_layers, steps + n_layers - 1
        g, s = self.stacks, self.slots

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
        blocks = triton.cdiv(rows, _ROWS * _BLOCKS)
        self.d_bias = buffer(g, blocks, 4 * h, dtype=torch.float32)
        self.run_forward: Callable[[], None] = self._forward
        self.run_backward: Callable[[], None] = self._backward
        if graphs and device.type == "cuda":
            self.run_forward = _captured(self._forward)
            self.run_backward = _captured(self._backward)

    def load_weights(self, weights: StackedWeights) -> None:
        """Copy the (float32) weights into the dtype of the products."""
        self.gates_weight.copy_(weights.gates.detach())
        self.bias.copy_(weights.bias.detach())
        self.projection_weight.copy_(weights.projection.detach())

    def load_state(self, cell: Tensor, hidden: Tensor) -> None:
        """Say where the rows stand: cell (G, B, H), hidden (G, B, D)."""
        goes_on = (1 - self.starts[:, 0].to(hidden.dtype)).unsqueeze(-1)  # (2, B, 1)
        for layer in range(self.config.n_layers):
            pair = slice(2 * layer, 2 * layer + 2)
            self.cells[pair, layer].copy_(cell[pair])
            d = self.config.projection_dim
            self.inputs[pair, layer, :, d:].copy_(hidden[pair] * goes_on)

    def state(self) -> tuple[Tensor, Tensor]:
        """Return where the rows stand after the last step: cell (G, B, H), hidden (G, B, D)."""
        d, t = self.config.projection_dim, self.steps
        layers = range(self.config.n_layers)
        cell = torch.cat([self.cells[2 * j : 2 * j + 2, t + j] for j in layers])
        hidden = torch.cat([self.inputs[2 * j : 2 * j + 2, t + j, :, d:] for j in layers])
        return cell, hidden

    # ------------------------------------------------------------------------------- the passes

    def _active(self, slot: int) -> tuple[int, int]:
        """Return the range of stacks that are at work in a slot."""
        low = max(0, slot - self.steps + 1)
        high = min(self.config.n_layers - 1, slot)
        return 2 * low, 2 * high + 2

    def _sizes(self, first: int, slot: int) -> tuple[Any, ...]:
        return first, slot, self.slots, self.rows, self.steps

    def _options(self) -> dict[str, Any]:
        clip = self.config.proj_clip
        return {
            "D": self.config.projection_dim,
            "CLIP": 0.0 if clip is None else float(clip),
            "SKIP": self.config.use_skip_connections,
            "DROP": self.dropout > 0,
            "BLOCK": _BLOCK,
        }

    def _forward(self) -> None:
        h, d = self.config.dim, self.config.projection_dim
        clip = 0.0 if self.config.cell_clip is None else float(self.config.cell_clip)
        for slot in range(self.slots):
            a, z = self._active(slot)
            torch.bmm(
                self.inputs[a:z, slot],
                self.gates_weight[a:z].transpose(1, 2),
                out=self.gates[a:z, slot],
            )
            grid = (triton.cdiv(self.rows, _ROWS), triton.cdiv(h, _COLS), z - a)
            kernels.cell_forward[grid](
                self.gates,
                self.bias,
                self.cells,
                self.hidden,
                self.starts,
                *self._sizes(a, slot),
                H=h,
                CLIP=clip,
                ROWS=_ROWS,
                COLS=_COLS,
            )
            torch.bmm(
                self.hidden[a:z, slot],
                self.projection_weight[a:z].transpose(1, 2),
                out=self.projected[a:z, slot],
            )
            kernels.output_forward[(triton.cdiv(self.rows * d, _BLOCK), z - a)](
                self.projected,
                self.inputs,
                self.out,
                self.starts,
                self.seed,
                *self._sizes(a, slot),
                self.config.n_layers,
                self.dropout,
                **self._options(),
            )

    def _backward(self) -> None:
        h, d = self.config.dim, self.config.projection_dim
        clip = 0.0 if self.config.cell_clip is None else float(self.config.cell_clip)
        for slot in reversed(range(self.slots)):
            a, z = self._active(slot)
            kernels.output_backward[(triton.cdiv(self.rows * d, _BLOCK), z - a)](
                self.d_out,
                self.d_inputs,
                self.d_output,
                self.projected,
                self.starts,
                self.seed,
                *self._sizes(a, slot),
                self.config.n_layers,
                self.dropout,
                **self._options(),
            )
            torch.bmm(
                self.projected[a:z, slot], self.projection_weight[a:z], out=self.d_hidden[a:z]
            )
            grid = (triton.cdiv(self.rows, _ROWS * _BLOCKS), triton.cdiv(h, _COLS), z - a)
            kernels.cell_backward[grid](
                self.gates,
                self.bias,
                self.cells,
                self.d_hidden,
                self.d_cell,
                self.d_bias,
                self.starts,
                *self._sizes(a, slot),
                H=h,
                CLIP=clip,
                BLOCKS=_BLOCKS,
                ROWS=_ROWS,
                COLS=_COLS,
            )
            torch.bmm(self.gates[a:z, slot], self.gates_weight[a:z], out=self.d_inputs[a:z, slot])

    def weight_gradients(self) -> StackedWeights:
        """Return the gradients of the weights after both passes, each one product over all slots."""
        t = self.steps
        gates, projection = [], []
        for layer in range(self.config.n_layers):
            pair, slots = slice(2 * layer, 2 * layer + 2), slice(layer, layer + t)
            d_gates = self.gates[pair, slots].flatten(1, 2)  # (2, T B, 4H)
            inputs = self.inputs[pair, slots].flatten(1, 2)  # (2, T B, 2D)
            gates.append(torch.bmm(d_gates.transpose(1, 2), inputs))
            d_projected = self.projected[pair, slots].flatten(1, 2)  # (2, T B, D)
            hidden = self.hidden[pair, slots].flatten(1, 2)  # (2, T B, H)
            projection.append(torch.bmm(d_projected.transpose(1, 2), hidden))
        return StackedWeights(torch.cat(gates), self.d_bias.sum(dim=1), torch.cat(projection))


class _Read(torch.autograd.Function):
    """The wavefront as one node of the autograd graph."""

    @staticmethod
    def forward(
        ctx: Any,
        wave: Wavefront,
        types: Tensor,
        index: Tensor,
        gates: Tensor,
        bias: Tensor,
        projection: Tensor,
    ) -> Tensor:
        wave.load_weights(StackedWeights(gates, bias, projection))
        d = wave.config.projection_dim
        kernels.gather_forward[(triton.cdiv(wave.rows * d, _BLOCK), wave.steps, 2)](
            types.contiguous(),
            index,
            wave.inputs,
            wave.seed,
            wave.slots,
            wave.rows,
            wave.steps,
            wave.dropout,
            D=d,
            DROP=wave.dropout > 0,
            BLOCK=_BLOCK,
        )
        wave.run_forward()
        ctx.wave, ctx.n_types, ctx.types_dtype = wave, len(types), types.dtype
        ctx.save_for_backward(index)
        return wave.out.clone()

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Any:
        wave: Wavefront = ctx.wave
        (index,) = ctx.saved_tensors
        wave.d_out.copy_(d_out)
        wave.run_backward()
        weights = wave.weight_gradients()
        d = wave.config.projection_dim
        d_x = torch.empty_like(wave.d_out, dtype=torch.float32)
        kernels.gather_backward[(triton.cdiv(wave.rows * d, _BLOCK), wave.steps, 2)](
            wave.d_inputs,
            d_x,
            wave.seed,
            wave.slots,
            wave.rows,
            wave.steps,
            wave.dropout,
            D=d,
            DROP=wave.dropout > 0,
            BLOCK=_BLOCK,
        )
        d_types = d_x.new_zeros(ctx.n_types, d)
        d_types.index_add_(0, index.flatten(), d_x.view(-1, d))
        return None, d_types.to(ctx.types_dtype), None, *(w.float() for w in weights)


def read_streams(wave: Wavefront, types: Tensor, index: Tensor, weights: StackedWeights) -> Tensor:
    """Read T tokens of every row in both directions.

    Args:
        wave: The buffers, with state, `starts` and `seed` set.
        types: x of the distinct words of the batch, shape (U, D).
        index: Which word stands where, shape (2, T, B); direction 1 is read as it stands, so its
            stream is already turned round.
        weights: The weights of all stacks.

    Returns:
        The top layer of both directions, after dropout, shape (2, T, B, D).
    """
    out: Tensor = _Read.apply(wave, types, index, *weights)
    return out


def _captured(run: Callable[[], None]) -> Callable[[], None]:
    """Record a pass as a CUDA graph; the kernels are compiled by a first plain run."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph.replay
