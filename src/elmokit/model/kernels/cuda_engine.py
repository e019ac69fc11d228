"""The LSTMs of the biLM on a GPU for inference, with all layers and directions as a wavefront.

As in training (`wavefront.py`), layer j processes token s - j in slot s, and the stacks that are
active in a slot share one matrix product. No values are stored for a backward pass. The batch is
packed (see `packing.py`), so later slots contain fewer sentences, and outputs are written directly
to the result. For one or two sentences, launching the kernels takes longer than running them, so
the launches are recorded as a CUDA graph for each shape that is used repeatedly.

The reference implementation is `elmokit.model.bilm.BiLM.contextualize`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from elmokit.device import to_device
from elmokit.model.bilm import BiLM
from elmokit.model.charcnn import CharacterEncoder
from elmokit.model.engine import PlainEngine, encode_in_blocks
from elmokit.model.kernels.charcnn import EncoderWeights, encode_types
from elmokit.model.kernels.pointwise import step_cell
from elmokit.model.kernels.wavefront import StackedWeights
from elmokit.model.lstm import LstmState
from elmokit.model.packing import Packing

# The block shape of the cell kernel that is fastest on an H200.
_ROWS, _COLS = 2, 512
# Block size of the output kernel.
_BLOCK = 1024
# Round up the number of rows of matrix products to a multiple of this value. This limits the number
# of different shapes, because cuBLAS selects a kernel for each new shape.
_ROW_STEP = 64
# Number of words to encode at once.
_WORDS = 512
# Maximum size of batches for which a graph is recorded, and maximum number of graphs.
_GRAPH_ROWS, _GRAPH_TOKENS = 2, 512
_MAX_GRAPHS = 64


@triton.jit
def _cell(
    gates_ptr,  # (G, B, 4H)
    bias_ptr,  # (G, 4H)
    cells_ptr,  # (G, B, H) float32, changed in place
    hidden_ptr,  # (G, B, H)
    plan_ptr,  # number of active sentences of each step, ... (see `_output`)
    first_stack,
    slot,
    n_rows,
    H: tl.constexpr,
    CLIP: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    FAST: tl.constexpr,
):
    """Compute c_k and sigmoid(o) tanh(c_k) of the sentences that have a token at this step."""
    g = (first_stack + tl.program_id(2)).to(tl.int64)
    active = tl.load(plan_ptr + slot - g // 2)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    if tl.program_id(0) * ROWS >= active:
        return
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    col_mask = cols < H
    mask = (rows[:, None] < active) & col_mask[None, :]
    bias = bias_ptr + g * 4 * H + cols
    z = gates_ptr + (g * n_rows + rows[:, None]) * 4 * H + cols[None, :]
    offsets = (g * n_rows + rows[:, None]) * H + cols[None, :]
    c_before = tl.load(cells_ptr + offsets, mask, 0.0)
    c, h = step_cell(z, bias, c_before, mask, col_mask, H, CLIP, FAST)
    tl.store(cells_ptr + offsets, c, mask)
    tl.store(hidden_ptr + offsets, h.to(hidden_ptr.dtype.element_ty), mask)


@triton.jit
def _output(
    projected_ptr,  # (G, B, D)
    inputs_ptr,  # (G, 2, B, 2D), indexed by the parity of the slot
    carried_ptr,  # (G, B, D) float32: r_k of the last token of each sentence
    x_ptr,  # (2, N, D): the input of each direction
    layers_ptr,  # (L + 1, N, 2D)
    plan_ptr,  # active sentences (T) and first token (T) of each step, reversal (N)
    first_stack,
    slot,
    n_rows,
    n_steps,
    n_tokens,
    n_layers,
    D: tl.constexpr,
    CLIP: tl.constexpr,
    SKIP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write r_k and h_k to the next token, the layer above and the result. Copy the next x_k."""
    g = (first_stack + tl.program_id(1)).to(tl.int64)
    layer, direction = g // 2, g % 2
    step = slot - layer
    active = tl.load(plan_ptr + step)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row, col = offsets // D, offsets % D
    mask = row < active
    r = tl.load(projected_ptr + g * n_rows * D + offsets, mask, 0.0).to(tl.float32)
    if CLIP > 0:
        r = tl.minimum(tl.maximum(r, -CLIP), CLIP)
    tl.store(carried_ptr + g * n_rows * D + offsets, r, mask)
    dtype = inputs_ptr.dtype.element_ty
    input_offsets = row * 2 * D + col
    inputs = inputs_ptr + (g * 2 + slot % 2) * n_rows * 2 * D + input_offsets
    next_inputs = inputs_ptr + (g * 2 + (slot + 1) % 2) * n_rows * 2 * D + input_offsets
    tl.store(next_inputs + D, r.to(dtype), mask)
    y = r
    if SKIP and layer > 0:
        y += tl.load(inputs, mask, 0.0).to(tl.float32)
    if layer + 1 < n_layers:
        tl.store(next_inputs + 4 * n_rows * 2 * D, y.to(dtype), mask)
    start = tl.load(plan_ptr + n_steps + step)
    token = (start + row).to(tl.int64)
    if direction == 1:
        token = tl.load(plan_ptr + 2 * n_steps + token, mask, 0).to(tl.int64)
    h = layers_ptr + ((layer + 1) * n_tokens + token) * 2 * D + direction * D + col
    tl.store(h, y.to(layers_ptr.dtype.element_ty), mask)
    if layer == 0 and step + 1 < n_steps:
        has_next = row < tl.load(plan_ptr + step + 1)
        token = (tl.load(plan_ptr + n_steps + step + 1) + row).to(tl.int64)
        if direction == 1:
            token = tl.load(plan_ptr + 2 * n_steps + token, has_next, 0).to(tl.int64)
        x = tl.load(x_ptr + (direction * n_tokens + token) * D + col, has_next, 0.0)
        tl.store(next_inputs, x.to(dtype), has_next)


class CudaEngine:
    """An `Engine` for CUDA GPUs.

    Args:
        bilm: The model, whose LSTMs must have a projection. The weights are copied.
        dtype: Data type of matrix products: float32, or bfloat16 for speed.
    """

    def __init__(self, bilm: BiLM, dtype: torch.dtype = torch.float32) -> None:
        self.bilm, self.config, self.dtype = bilm, bilm.config.lstm, dtype
        self.device = next(bilm.parameters()).device
        exact = StackedWeights.zeros(self.config, self.device)
        parameters = dict(bilm.named_parameters())
        for name, view in exact.by_parameter().items():
            view.copy_(parameters[name].data)
        self.weights = StackedWeights(exact.gates.to(dtype), exact.bias, exact.projection.to(dtype))
        self._encoder: EncoderWeights | None = None
        if isinstance(bilm.encoder, CharacterEncoder):
            self._encoder = EncoderWeights.of(bilm.encoder, dtype)
        self._fast_tanh = self.device.type == "cuda" and dtype == torch.bfloat16
        self._graphs: OrderedDict[tuple[int, ...], _RecordedGraph | None] = OrderedDict()

    @torch.inference_mode()
    def encode(self, ids: Tensor) -> Tensor:
        """Encode distinct tokens: ids (n, C) or (n,) on the CPU -> x (n, D) in float32."""
        if (weights := self._encoder) is None:
            return PlainEngine(self.bilm).encode(ids)
        max_width = weights.encoder.config.max_width
        out = torch.empty(len(ids), self.config.projection_dim, device=self.device)
        with _exact_products():
            encode_in_blocks(lambda b: encode_types(weights, [b]), ids, out, max_width, _WORDS)
        return out

    @torch.inference_mode()
    def contextualize(
        self,
        x: Tensor,
        packing: Packing,
        state: LstmState | None = None,
        backward_x: Tensor | None = None,
    ) -> tuple[Tensor, LstmState]:
        """Compute the layers; see `BiLM.contextualize`."""
        if packing.n_tokens == 0:
            return self.bilm.contextualize(x, packing, state)
        inputs = torch.stack([x, x if backward_x is None else backward_x])
        compute = self._find_graph(packing) or _Batch(self, packing)
        order = to_device(packing.order, self.device)
        initial = None if state is None else state.select(order)
        layers, final = compute(inputs, initial)
        return layers, final.select(torch.argsort(order))

    def _find_graph(self, packing: Packing) -> _RecordedGraph | None:
        """Return the CUDA graph for this shape, if the shape is small and has been used before."""
        is_small = len(packing.lengths) <= _GRAPH_ROWS and packing.n_tokens <= _GRAPH_TOKENS
        if not is_small or self.device.type != "cuda":
            return None
        shape = tuple(packing.active)
        if shape not in self._graphs:
            self._graphs[shape] = None  # recorded when the shape is used again
            if len(self._graphs) > _MAX_GRAPHS:
                self._graphs.popitem(last=False)
            return None
        self._graphs.move_to_end(shape)
        graph = self._graphs[shape]
        if graph is None:
            graph = self._graphs[shape] = _RecordedGraph(self, packing)
        return graph


class _Batch:
    """The buffers of a batch and the computation of its layers."""

    def __init__(self, engine: CudaEngine, packing: Packing) -> None:
        self.engine, self.config = engine, engine.config
        self.active = packing.active
        # Sentences without tokens come last. They only have a state.
        self.rows, self.steps = len(packing.lengths), len(packing.active)
        self.n_tokens = packing.n_tokens
        starts = np.cumsum(packing.active) - packing.active
        plan = np.concatenate([packing.active, starts, packing.reversal]).astype(np.int32)
        self.plan = to_device(plan, engine.device)
        h, d, g = self.config.dim, self.config.projection_dim, 2 * self.config.n_layers

        def buffer(*size: int, dtype: torch.dtype = engine.dtype) -> Tensor:
            return torch.empty(size, dtype=dtype, device=engine.device)

        self.inputs = buffer(g, 2, self.rows, 2 * d)
        self.gates = buffer(g, self.rows, 4 * h)
        self.hidden = buffer(g, self.rows, h)
        self.projected = buffer(g, self.rows, d)
        self.cells = buffer(g, self.rows, h, dtype=torch.float32)
        self.carried = buffer(g, self.rows, d, dtype=torch.float32)
        self.layers = buffer(self.config.n_layers + 1, self.n_tokens, 2 * d, dtype=torch.float32)

    def __call__(self, x: Tensor, initial: LstmState | None) -> tuple[Tensor, LstmState]:
        """Compute all layers. The initial and final states are in packed order."""
        self.set_state(initial)
        self.run(x)
        return self.layers, self.state()

    def set_state(self, initial: LstmState | None) -> None:
        """Set the initial state of the sentences."""
        if initial is None:
            self.cells.zero_()
            self.carried.zero_()
        else:
            self.cells.copy_(initial.cell.transpose(0, 1).flatten(0, 1))
            self.carried.copy_(initial.hidden.transpose(0, 1).flatten(0, 1))

    def state(self) -> LstmState:
        """Return the final state of the sentences."""
        return LstmState(
            *(t.view(-1, 2, *t.shape[1:]).transpose(0, 1) for t in (self.cells, self.carried))
        )

    def run(self, x: Tensor) -> None:
        """Process all slots, with the inputs of both directions in x (2, N, D)."""
        d, n_layers = self.config.projection_dim, self.config.n_layers
        self.layers[0, :, :d], self.layers[0, :, d:] = x
        # The input of each stack in its first slot.
        n = self.active[0]
        self.inputs[0, 0, :n, :d] = x[0, :n]
        self.inputs[1, 0, :n, :d] = x[1, self.plan[2 * self.steps :][:n]]
        for layer in range(n_layers):
            pair = slice(2 * layer, 2 * layer + 2)
            self.inputs[pair, layer % 2, :, d:] = self.carried[pair]
        with _exact_products():
            for slot in range(self.steps + n_layers - 1):
                bottom, top = max(0, slot - self.steps + 1), min(n_layers - 1, slot)
                n = -(-self.active[slot - top] // _ROW_STEP) * _ROW_STEP
                self._run_slot(slot, 2 * bottom, 2 * top + 2, min(n, self.rows), x)

    def _run_slot(self, slot: int, first: int, end: int, n: int, x: Tensor) -> None:
        """Process the first n rows of a slot with the stacks from `first` to `end` (exclusive)."""
        weights, c = self.engine.weights, self.config
        h, d = c.dim, c.projection_dim
        torch.bmm(
            self.inputs[first:end, slot % 2, :n],
            weights.gates[first:end].transpose(1, 2),
            out=self.gates[first:end, :n],
        )
        _cell[(triton.cdiv(n, _ROWS), triton.cdiv(h, _COLS), end - first)](
            self.gates,
            weights.bias,
            self.cells,
            self.hidden,
            self.plan,
            first,
            slot,
            self.rows,
            H=h,
            CLIP=float(c.cell_clip or 0.0),
            ROWS=_ROWS,
            COLS=_COLS,
            FAST=self.engine._fast_tanh,
        )
        torch.bmm(
            self.hidden[first:end, :n],
            weights.projection[first:end].transpose(1, 2),
            out=self.projected[first:end, :n],
        )
        _output[(triton.cdiv(n * d, _BLOCK), end - first)](
            self.projected,
            self.inputs,
            self.carried,
            x,
            self.layers,
            self.plan,
            first,
            slot,
            self.rows,
            self.steps,
            self.n_tokens,
            c.n_layers,
            D=d,
            CLIP=float(c.proj_clip or 0.0),
            SKIP=c.use_skip_connections,
            BLOCK=_BLOCK,
        )


class _RecordedGraph:
    """The computation for one shape, recorded as a CUDA graph with its own buffers."""

    def __init__(self, engine: CudaEngine, packing: Packing) -> None:
        self._batch = _Batch(engine, packing)
        d = engine.config.projection_dim
        self._x = torch.zeros(2, packing.n_tokens, d, device=engine.device)
        stream = torch.cuda.Stream(engine.device)
        stream.wait_stream(torch.cuda.current_stream(engine.device))
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            self._batch.set_state(None)
            self._batch.run(self._x)  # compiles kernels and lets cuBLAS allocate its workspace
            stream.synchronize()
            with torch.cuda.graph(self._graph, stream=stream):
                self._batch.run(self._x)
        torch.cuda.current_stream(engine.device).wait_stream(stream)

    def __call__(self, x: Tensor, initial: LstmState | None) -> tuple[Tensor, LstmState]:
        self._x.copy_(x)
        self._batch.set_state(initial)
        self._graph.replay()
        state = self._batch.state()  # the next call overwrites the buffers of the graph
        return self._batch.layers.clone(), LstmState(state.cell.clone(), state.hidden.clone())


@contextmanager
def _exact_products() -> Iterator[None]:
    """Compute float32 products in this context without TF32, regardless of global settings."""
    previous = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(previous)
