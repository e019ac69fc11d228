"""Triton kernels of the LSTM wavefront: everything between its matrix products.

Buffers are indexed [stack g, slot s, row b, column], see `wavefront.py`. All arithmetic is float32;
the gates, hidden values and gradients are stored in the dtype of their buffers, cells in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

FORGET_BIAS = tl.constexpr(1.0)


@triton.jit
def _tanh(x, FAST: tl.constexpr):
    """Compute tanh; FAST is one GPU instruction, exact to 11 bits, more than bfloat16 has."""
    if FAST:
        y = tl.inline_asm_elementwise(
            "tanh.approx.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    else:
        y = 2.0 * tl.sigmoid(2.0 * x) - 1.0
    return y


@triton.jit
def _sigmoid(x, FAST: tl.constexpr):
    return 0.5 * _tanh(0.5 * x, FAST) + 0.5


@triton.jit
def _keep(seed_ptr, place, p):
    """Dropout factor at each position, 0 or 1 / (1 - p), determined by seed and position."""
    seed = tl.load(seed_ptr)
    return tl.where(tl.rand(seed, place.to(tl.int32)) >= p, 1.0 / (1.0 - p), 0.0)


@triton.jit
def _goes_on(starts_ptr, direction, step, row, n_steps, n_rows):
    """0 if the row starts from the zero state at this step, otherwise 1."""
    at = starts_ptr + (direction * n_steps + step) * n_rows + row
    return 1.0 - tl.load(at, row < n_rows, 0).to(tl.float32)


@triton.jit
def step_cell(
    z,  # the products of the gate i; those of j, f and o follow at distances of H
    bias,
    c_before,
    inside,
    good,  # columns inside
    H: tl.constexpr,
    CLIP: tl.constexpr,
    FAST: tl.constexpr,
):
    """Return c_k and sigmoid(o) tanh(c_k)."""
    i = tl.load(z, inside, 0.0).to(tl.float32) + tl.load(bias, good, 0.0)[None, :]
    j = tl.load(z + H, inside, 0.0).to(tl.float32) + tl.load(bias + H, good, 0.0)[None, :]
    f = tl.load(z + 2 * H, inside, 0.0).to(tl.float32) + tl.load(bias + 2 * H, good, 0.0)[None, :]
    o = tl.load(z + 3 * H, inside, 0.0).to(tl.float32) + tl.load(bias + 3 * H, good, 0.0)[None, :]
    c = _sigmoid(f + FORGET_BIAS, FAST) * c_before + _sigmoid(i, FAST) * _tanh(j, FAST)
    if CLIP > 0:
        c = tl.minimum(tl.maximum(c, -CLIP), CLIP)
    return c, _sigmoid(o, FAST) * _tanh(c, FAST)


@triton.jit
def cell_forward(
    gates_ptr,  # (G, S, B, 4H)
    bias_ptr,  # (G, 4H)
    cells_ptr,  # (G, S + 1, B, H) float32
    hidden_ptr,  # (G, S, B, H)
    starts_ptr,  # (2, T, B): 1 if the row starts from the zero state
    first,
    slot,
    n_slots,
    n_rows,
    n_steps,
    H: tl.constexpr,
    CLIP: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    FAST: tl.constexpr,
):
    """Compute c_k and sigmoid(o) tanh(c_k) from the products of the gates."""
    g = (first + tl.program_id(2)).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    inside = (rows[:, None] < n_rows) & (cols[None, :] < H)
    bias = bias_ptr + g * 4 * H + cols
    z = gates_ptr + (g * n_slots + slot) * n_rows * 4 * H + rows[:, None] * 4 * H + cols[None, :]
    at = rows[:, None] * H + cols[None, :]
    before = cells_ptr + (g * (n_slots + 1) + slot) * n_rows * H + at
    goes_on = _goes_on(starts_ptr, g % 2, slot - g // 2, rows, n_steps, n_rows)
    c_before = tl.load(before, inside, 0.0) * goes_on[:, None]
    c, h = step_cell(z, bias, c_before, inside, cols < H, H, CLIP, FAST)
    tl.store(before + n_rows * H, c, inside)
    to = hidden_ptr + (g * n_slots + slot) * n_rows * H + at
    tl.store(to, h.to(hidden_ptr.dtype.element_ty), inside)


@triton.jit
def output_forward(
    projected_ptr,  # (G, S, B, D)
    inputs_ptr,  # (G, S + 1, B, 2D)
    out_ptr,  # (2, T, B, D)
    starts_ptr,  # (2, T, B)
    seed_ptr,
    first,
    slot,
    n_slots,
    n_rows,
    n_steps,
    n_layers,
    p,
    D: tl.constexpr,
    CLIP: tl.constexpr,
    SKIP: tl.constexpr,
    DROP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write r_k to where the next token and the layer above (or the head) read it."""
    g = (first + tl.program_id(1)).to(tl.int64)
    layer = g // 2
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n_rows * D
    row, col = at // D, at % D
    r = tl.load(projected_ptr + (g * n_slots + slot) * n_rows * D + at, inside, 0.0).to(tl.float32)
    if CLIP > 0:
        r = tl.minimum(tl.maximum(r, -CLIP), CLIP)
    step = slot - layer
    carried = r
    if step + 1 < n_steps:
        carried = r * _goes_on(starts_ptr, g % 2, step + 1, row, n_steps, n_rows)
    dtype = inputs_ptr.dtype.element_ty
    plane = n_rows * 2 * D  # one slot of the inputs
    here = inputs_ptr + (g * (n_slots + 1) + slot) * plane + row * 2 * D + col
    tl.store(here + plane + D, carried.to(dtype), inside)
    y = r.to(dtype).to(tl.float32)
    if SKIP and layer > 0:
        y += tl.load(here, inside, 0.0).to(tl.float32)
    if DROP:
        y *= _keep(seed_ptr, ((g + 2) * n_slots + slot) * n_rows * D + at, p)
    if layer + 1 < n_layers:
        above = here + (2 * (n_slots + 1) + 1) * plane
        tl.store(above, y.to(dtype), inside)
    else:
        to = out_ptr + ((g % 2) * n_steps + step) * n_rows * D + at
        tl.store(to, y.to(out_ptr.dtype.element_ty), inside)


@triton.jit
def output_backward(
    d_out_ptr,  # (2, T, B, D)
    d_inputs_ptr,  # (G, S + 1, B, 2D)
    d_output_ptr,  # (G, 2, B, D): gradient of each layer's output, by parity of the slot
    projected_ptr,  # (G, S, B, D): r_k in, its gradient out
    starts_ptr,  # (2, T, B)
    seed_ptr,
    first,
    slot,
    n_slots,
    n_rows,
    n_steps,
    n_layers,
    p,
    D: tl.constexpr,
    CLIP: tl.constexpr,
    SKIP: tl.constexpr,
    DROP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gradient of the projection product, from the next token and the layer above or the loss."""
    g = (first + tl.program_id(1)).to(tl.int64)
    layer = g // 2
    step = slot - layer
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n_rows * D
    row, col = at // D, at % D
    plane = n_rows * 2 * D
    next_here = (g * (n_slots + 1) + slot + 1) * plane + row * 2 * D + col
    if layer + 1 < n_layers:
        above = next_here + 2 * (n_slots + 1) * plane
        dy = tl.load(d_inputs_ptr + above, inside, 0.0).to(tl.float32)
        if SKIP:  # the layer above added its input to its output
            skipped = ((g + 2) * 2 + (slot + 1) % 2) * n_rows * D + at
            dy += tl.load(d_output_ptr + skipped, inside, 0.0).to(tl.float32)
    else:
        from_loss = ((g % 2) * n_steps + step) * n_rows * D + at
        dy = tl.load(d_out_ptr + from_loss, inside, 0.0).to(tl.float32)
    if DROP:
        dy *= _keep(seed_ptr, ((g + 2) * n_slots + slot) * n_rows * D + at, p)
    kept = d_output_ptr + (g * 2 + slot % 2) * n_rows * D + at
    tl.store(kept, dy.to(d_output_ptr.dtype.element_ty), inside)
    if step + 1 < n_steps:
        goes_on = _goes_on(starts_ptr, g % 2, step + 1, row, n_steps, n_rows)
        dy += goes_on * tl.load(d_inputs_ptr + next_here + D, inside, 0.0).to(tl.float32)
    to = projected_ptr + (g * n_slots + slot) * n_rows * D + at
    if CLIP > 0:
        r = tl.load(to, inside, 0.0).to(tl.float32)
        dy = tl.where(tl.abs(r) < CLIP, dy, 0.0)
    tl.store(to, dy.to(projected_ptr.dtype.element_ty), inside)


@triton.jit
def cell_backward(
    gates_ptr,  # (G, S, B, 4H): the products in, their gradients out
    bias_ptr,  # (G, 4H)
    cells_ptr,  # (G, S + 1, B, H) float32
    d_hidden_ptr,  # (G, B, H)
    d_cell_ptr,  # (G, B, H) float32, carried from token to token
    d_bias_ptr,  # (G, row blocks, 4H) float32, summed over slots
    starts_ptr,  # (2, T, B)
    first,
    slot,
    n_slots,
    n_rows,
    n_steps,
    H: tl.constexpr,
    CLIP: tl.constexpr,
    BLOCKS: tl.constexpr,
    ROWS: tl.constexpr,
    COLS: tl.constexpr,
    FAST: tl.constexpr,
):
    """Gradient of the gate products; one program processes BLOCKS blocks of ROWS rows."""
    g = (first + tl.program_id(2)).to(tl.int64)
    last = slot - g // 2 + 1 == n_steps
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    good = cols < H
    bias = bias_ptr + g * 4 * H + cols
    b_i = tl.load(bias, good, 0.0)[None, :]
    b_j = tl.load(bias + H, good, 0.0)[None, :]
    b_f = tl.load(bias + 2 * H, good, 0.0)[None, :]
    b_o = tl.load(bias + 3 * H, good, 0.0)[None, :]
    sum_i = tl.zeros((COLS,), tl.float32)
    sum_j = tl.zeros((COLS,), tl.float32)
    sum_f = tl.zeros((COLS,), tl.float32)
    sum_o = tl.zeros((COLS,), tl.float32)
    dtype = gates_ptr.dtype.element_ty
    for block in range(BLOCKS):
        rows = (tl.program_id(0) * BLOCKS + block) * ROWS + tl.arange(0, ROWS)
        inside = (rows[:, None] < n_rows) & good[None, :]
        at = rows[:, None] * H + cols[None, :]
        z = (
            gates_ptr
            + (g * n_slots + slot) * n_rows * 4 * H
            + rows[:, None] * 4 * H
            + cols[None, :]
        )
        i = _sigmoid(tl.load(z, inside, 0.0).to(tl.float32) + b_i, FAST)
        j = _tanh(tl.load(z + H, inside, 0.0).to(tl.float32) + b_j, FAST)
        f = _sigmoid(tl.load(z + 2 * H, inside, 0.0).to(tl.float32) + b_f + FORGET_BIAS, FAST)
        o = _sigmoid(tl.load(z + 3 * H, inside, 0.0).to(tl.float32) + b_o, FAST)
        cell = cells_ptr + (g * (n_slots + 1) + slot) * n_rows * H + at
        goes_on = _goes_on(starts_ptr, g % 2, slot - g // 2, rows, n_steps, n_rows)[:, None]
        c_before = tl.load(cell, inside, 0.0) * goes_on
        c = tl.load(cell + n_rows * H, inside, 0.0)
        dh = tl.load(d_hidden_ptr + g * n_rows * H + at, inside, 0.0).to(tl.float32)
        carried = d_cell_ptr + g * n_rows * H + at
        tanh_c = _tanh(c, FAST)
        dc = dh * o * (1.0 - tanh_c * tanh_c)
        if not last:
            dc += tl.load(carried, inside, 0.0)
        if CLIP > 0:
            dc = tl.where(tl.abs(c) < CLIP, dc, 0.0)
        tl.store(carried, dc * f * goes_on, inside)
        d_o = dh * tanh_c * o * (1.0 - o)
        d_i = dc * j * i * (1.0 - i)
        d_j = dc * i * (1.0 - j * j)
        d_f = dc * c_before * f * (1.0 - f)
        tl.store(z, d_i.to(dtype), inside)
        tl.store(z + H, d_j.to(dtype), inside)
        tl.store(z + 2 * H, d_f.to(dtype), inside)
        tl.store(z + 3 * H, d_o.to(dtype), inside)
        sum_i += tl.sum(tl.where(inside, d_i, 0.0), 0)
        sum_j += tl.sum(tl.where(inside, d_j, 0.0), 0)
        sum_f += tl.sum(tl.where(inside, d_f, 0.0), 0)
        sum_o += tl.sum(tl.where(inside, d_o, 0.0), 0)
    total = d_bias_ptr + (g * tl.num_programs(0) + tl.program_id(0)) * 4 * H + cols
    if not last:
        sum_i += tl.load(total, good, 0.0)
        sum_j += tl.load(total + H, good, 0.0)
        sum_f += tl.load(total + 2 * H, good, 0.0)
        sum_o += tl.load(total + 3 * H, good, 0.0)
    tl.store(total, sum_i, good)
    tl.store(total + H, sum_j, good)
    tl.store(total + 2 * H, sum_f, good)
    tl.store(total + 3 * H, sum_o, good)


@triton.jit
def gather_forward(
    types_ptr,  # (U, D)
    index_ptr,  # (2, T, B)
    inputs_ptr,  # (G, S + 1, B, 2D)
    seed_ptr,
    n_slots,
    n_rows,
    n_steps,
    p,
    D: tl.constexpr,
    DROP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy x_k of each token from the table of distinct words, with dropout, to layer 0's input."""
    g = tl.program_id(2).to(tl.int64)
    step = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n_rows * D
    row, col = at // D, at % D
    word = tl.load(index_ptr + (g * n_steps + step) * n_rows + row, inside, 0).to(tl.int64)
    x = tl.load(types_ptr + word * D + col, inside, 0.0).to(tl.float32)
    if DROP:
        x *= _keep(seed_ptr, (g * n_slots + step) * n_rows * D + at, p)
    to = inputs_ptr + (g * (n_slots + 1) + step) * n_rows * 2 * D + row * 2 * D + col
    tl.store(to, x.to(inputs_ptr.dtype.element_ty), inside)


@triton.jit
def gather_backward(
    d_inputs_ptr,  # (G, S + 1, B, 2D)
    d_x_ptr,  # (2, T, B, D)
    seed_ptr,
    n_slots,
    n_rows,
    n_steps,
    p,
    D: tl.constexpr,
    DROP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gradient of x_k of each token, before the gradients of the same word are summed."""
    g = tl.program_id(2).to(tl.int64)
    step = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n_rows * D
    row, col = at // D, at % D
    source = d_inputs_ptr + (g * (n_slots + 1) + step) * n_rows * 2 * D + row * 2 * D + col
    dx = tl.load(source, inside, 0.0).to(tl.float32)
    if DROP:
        dx *= _keep(seed_ptr, (g * n_slots + step) * n_rows * D + at, p)
    to = d_x_ptr + (g * n_steps + step) * n_rows * D + at
    tl.store(to, dx.to(d_x_ptr.dtype.element_ty), inside)
