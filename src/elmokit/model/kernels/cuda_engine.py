"""Run the LSTMs of a biLM on a GPU for inference, with all layers and directions in parallel.

As in training (`wavefront.py`), layer j processes step s - j in slot s, and all 2L LSTMs (one per
layer and direction) share batched matrix products. No activations are stored for a backward pass.
The batch is packed (see `packing.py`), so later slots contain fewer sentences. Launching the
kernels of a slot from Python takes longer than running them, so a few slots at a time are captured
in a CUDA graph, with one graph for each number of rows. Graphs have fixed memory addresses, so all
batches use the same buffers, and the kernels read the current slot and its number of sentences from
GPU memory.

In the shapes below, G = 2L is the number of LSTMs, with the index g = 2 * layer + direction.

The reference implementation is `elmokit.model.bilm.BiLM.contextualize`.
"""

from __future__ import annotations

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

# The fastest block shape of the cell kernel on an H200.
_ROWS, _COLS = 2, 512
# Block size of the output kernel.
_BLOCK = 1024
# Round up the number of rows of matrix products to a multiple of this value. This limits the number
# of different shapes, because cuBLAS selects a kernel for each new shape.
_ROW_STEP = 64
# Maximum number of distinct row counts, and therefore of graphs.
_MAX_GRAPHS = 32
# Number of slots per graph. Must be even, because even and odd slots use different input buffers.
_SLOTS = 4
# Number of words to encode at once.
_WORDS = 512


@triton.jit(do_not_specialize=["offset", "n_rows"])
def _cell(
    gates_ptr,  # (G, B, 4H)
    bias_ptr,  # (G, 4H)
    cells_ptr,  # (G, B, H) float32, changed in place
    hidden_ptr,  # (G, B, H)
    plan_ptr,  # number of active sentences in each step, ... (see `_output`)
    slot_ptr,  # the first slot of the graph
    offset,  # the index of the slot within the graph
    n_rows,  # B
    H: tl.constexpr,
    LAYERS: tl.constexpr,
    CLIP: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    FAST: tl.constexpr,
):
    """Compute c_k and sigmoid(o) tanh(c_k) for the sentences that have a token at this step."""
    g = tl.program_id(2).to(tl.int64)
    active = tl.load(plan_ptr + LAYERS - 1 + tl.load(slot_ptr) + offset - g // 2)
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


@triton.jit(do_not_specialize=["offset", "n_rows", "n_tokens", "n_steps"])
def _output(
    projected_ptr,  # (G, B, D)
    inputs_ptr,  # (G, 2, B, 2D), indexed by the parity of the slot
    carried_ptr,  # (G, B, D) float32: r_k of the latest token of each sentence
    x_ptr,  # (2, N, D): the input of each direction
    layers_ptr,  # (LAYERS + 1, N, 2D)
    plan_ptr,  # for each step from 1 - LAYERS, the number of active sentences (S) and the index of
    # the first token (S); then the reversal (N)
    slot_ptr,  # the first slot of the graph
    offset,  # the index of the slot within the graph
    n_rows,  # B
    n_tokens,  # N
    n_steps,  # S
    D: tl.constexpr,
    LAYERS: tl.constexpr,
    CLIP: tl.constexpr,
    SKIP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write r_k to the next token's inputs, and h_k to the layer above and to the result.

    For layer 0, also copy the next x_k to the inputs.
    """
    g = tl.program_id(1).to(tl.int64)
    layer, direction = g // 2, g % 2
    slot = tl.load(slot_ptr) + offset
    step = LAYERS - 1 + slot - layer
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
    if layer + 1 < LAYERS:
        tl.store(next_inputs + 4 * n_rows * 2 * D, y.to(dtype), mask)
    token = (tl.load(plan_ptr + n_steps + step) + row).to(tl.int64)
    if direction == 1:
        token = tl.load(plan_ptr + 2 * n_steps + token, mask, 0).to(tl.int64)
    h = layers_ptr + ((layer + 1) * n_tokens + token) * 2 * D + direction * D + col
    tl.store(h, y.to(layers_ptr.dtype.element_ty), mask)
    if layer == 0:
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
        dtype: Data type of the matrix products: float32, or bfloat16 for speed.
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
        self._workspace: _Workspace | None = None

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
        if self._workspace is None or not self._workspace.fits(packing):
            sizes = (0, 0, 0) if self._workspace is None else self._workspace.sizes
            self._workspace = None  # release the old buffers first
            self._workspace = _Workspace(self, packing, sizes)
        order = to_device(packing.order, self.device)
        initial = None if state is None else state.select(order)
        inputs = (x, x if backward_x is None else backward_x)
        with _exact_products():
            layers, final = self._workspace.compute(inputs, packing, initial)
        return layers, final.select(torch.argsort(order))


class _Workspace:
    """Buffers for all batches up to a given size, and the CUDA graphs that use these buffers.

    Args:
        engine: The engine.
        packing: The packing of a batch for which the buffers must be large enough.
        min_sizes: The minimum numbers of sentences, steps and tokens.
    """

    def __init__(self, engine: CudaEngine, packing: Packing, min_sizes: tuple[int, ...]) -> None:
        self.engine, self.config = engine, engine.config
        sizes = map(max, _sizes(packing), min_sizes)
        self.sizes: tuple[int, ...] = tuple(map(_round_up, sizes, (_ROW_STEP, 64, 512)))
        self.rows, steps, self.tokens = self.sizes
        h, d, n_layers = self.config.dim, self.config.projection_dim, self.config.n_layers
        g = 2 * n_layers

        def buffer(*size: int, dtype: torch.dtype = engine.dtype) -> Tensor:
            return torch.empty(size, dtype=dtype, device=engine.device)

        self.x = buffer(2, self.tokens, d, dtype=torch.float32)
        self.inputs = buffer(g, 2, self.rows, 2 * d)
        self.gates = buffer(g, self.rows, 4 * h)
        self.hidden = buffer(g, self.rows, h)
        self.projected = buffer(g, self.rows, d)
        self.cells = buffer(g, self.rows, h, dtype=torch.float32)
        self.carried = buffer(g, self.rows, d, dtype=torch.float32)
        self.layers = buffer(n_layers + 1, self.tokens, 2 * d, dtype=torch.float32)
        # Includes the steps before the first and after the last token of each layer, in which no
        # sentences are active.
        self.plan_steps = steps + 2 * n_layers + _SLOTS
        self.plan = buffer(2 * self.plan_steps + self.tokens, dtype=torch.int32)
        self.slot = buffer(1, dtype=torch.int32)
        # The graph for each number of rows; None if that number has been used only once.
        self._graphs: dict[int, torch.cuda.CUDAGraph | None] = {}

    def fits(self, packing: Packing) -> bool:
        """Return whether the buffers are large enough for a batch."""
        return all(size <= limit for size, limit in zip(_sizes(packing), self.sizes, strict=True))

    def compute(
        self, inputs: tuple[Tensor, Tensor], packing: Packing, initial: LstmState | None
    ) -> tuple[Tensor, LstmState]:
        """Compute all layers. The initial and final states are in packed order."""
        rows, steps, tokens = _sizes(packing)
        d, n_layers = self.config.projection_dim, self.config.n_layers
        self._set_plan(packing)
        self._set_state(initial, rows)
        for direction, x in enumerate(inputs):
            self.x[direction, :tokens] = x
            self.layers[0, :tokens, direction * d : (direction + 1) * d] = x
        # The input of each LSTM in its first slot.
        n = packing.active[0]
        first_tokens = self.plan[2 * self.plan_steps :][:n]
        self.inputs[0, 0, :n, :d] = inputs[0][:n]
        self.inputs[1, 0, :n, :d] = inputs[1][first_tokens]
        for layer in range(n_layers):
            pair = slice(2 * layer, 2 * layer + 2)
            self.inputs[pair, layer % 2, :rows, d:] = self.carried[pair, :rows]
        row_step = max(_ROW_STEP, self.rows // _MAX_GRAPHS)
        for slot in range(0, steps + n_layers - 1, _SLOTS):
            n = packing.active[max(0, slot - n_layers + 1)]
            self._run_or_replay(min(-(-n // row_step) * row_step, self.rows))
        cell, hidden = (
            values[:, :rows].unflatten(0, (n_layers, 2)).transpose(0, 1)
            for values in (self.cells, self.carried)
        )
        return self.layers[:, :tokens].clone(), LstmState(cell, hidden)

    def _set_plan(self, packing: Packing) -> None:
        """Set the number of sentences and first token of each step, and the reversal, in `plan`."""
        active = np.asarray(packing.active)
        plan = np.zeros(2 * self.plan_steps + packing.n_tokens, dtype=np.int32)
        first = self.config.n_layers - 1
        plan[first:][: len(active)] = active
        plan[self.plan_steps + first :][: len(active)] = active.cumsum() - active
        plan[2 * self.plan_steps :] = packing.reversal
        self.plan[: len(plan)] = to_device(plan, self.engine.device)
        self.slot.zero_()

    def _set_state(self, initial: LstmState | None, rows: int) -> None:
        """Set the initial state of the sentences."""
        if initial is None:
            self.cells[:, :rows] = 0
            self.carried[:, :rows] = 0
        else:
            self.cells[:, :rows] = initial.cell.transpose(0, 1).flatten(0, 1)
            self.carried[:, :rows] = initial.hidden.transpose(0, 1).flatten(0, 1)

    def _run_or_replay(self, n: int) -> None:
        """Process the next slots of the first n rows, with a graph if n has been used before."""
        if self.engine.device.type != "cuda" or n not in self._graphs:
            self._graphs[n] = None
            self._run_slots(n)
            return
        graph = self._graphs[n]
        if graph is None:
            graph = self._graphs[n] = self._capture(n)
        graph.replay()

    def _capture(self, n: int) -> torch.cuda.CUDAGraph:
        """Capture a graph of the next slots without running them."""
        current = torch.cuda.current_stream(self.engine.device)
        stream = torch.cuda.Stream(self.engine.device)
        stream.wait_stream(current)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            self._compute_gates(0, n)  # cuBLAS allocates its workspace for the stream
            # In this mode, other threads may synchronize with the GPU during the capture.
            graph.capture_begin(capture_error_mode="thread_local")
            self._run_slots(n)
            graph.capture_end()
        current.wait_stream(stream)
        return graph

    def _run_slots(self, n: int) -> None:
        for offset in range(_SLOTS):
            self._run_slot(offset, n)
        self.slot += _SLOTS

    def _compute_gates(self, offset: int, n: int) -> None:
        weights = self.engine.weights.gates.transpose(1, 2)
        torch.bmm(self.inputs[:, offset % 2, :n], weights, out=self.gates[:, :n])

    def _run_slot(self, offset: int, n: int) -> None:
        """Process the first n rows of a slot with all LSTMs."""
        weights, c = self.engine.weights, self.config
        h, d, g = c.dim, c.projection_dim, 2 * c.n_layers
        self._compute_gates(offset, n)
        _cell[(triton.cdiv(n, _ROWS), triton.cdiv(h, _COLS), g)](
            self.gates,
            weights.bias,
            self.cells,
            self.hidden,
            self.plan,
            self.slot,
            offset,
            self.rows,
            H=h,
            LAYERS=c.n_layers,
            CLIP=float(c.cell_clip or 0.0),
            ROWS=_ROWS,
            COLS=_COLS,
            FAST=self.engine._fast_tanh,
        )
        torch.bmm(self.hidden[:, :n], weights.projection.transpose(1, 2), out=self.projected[:, :n])
        _output[(triton.cdiv(n * d, _BLOCK), g)](
            self.projected,
            self.inputs,
            self.carried,
            self.x,
            self.layers,
            self.plan,
            self.slot,
            offset,
            self.rows,
            self.tokens,
            self.plan_steps,
            D=d,
            LAYERS=c.n_layers,
            CLIP=float(c.proj_clip or 0.0),
            SKIP=c.use_skip_connections,
            BLOCK=_BLOCK,
        )


def _sizes(packing: Packing) -> tuple[int, int, int]:
    """Return the numbers of sentences, steps and tokens in a batch."""
    # Sentences without tokens come last. They have a state but take part in no step.
    return len(packing.lengths), len(packing.active), packing.n_tokens


def _round_up(size: int, min_step: int) -> int:
    """Round up to a multiple of a quarter of the next power of two, and of `min_step`."""
    step = max(min_step, 1 << max(0, size.bit_length() - 2))
    return -(-size // step) * step


@contextmanager
def _exact_products() -> Iterator[None]:
    """Compute float32 matrix products without TF32 in this context, regardless of global state."""
    previous = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(previous)
