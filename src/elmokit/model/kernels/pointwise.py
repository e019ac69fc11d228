"""The Triton kernels of the LSTM wavefront, for everything except matrix products.

Buffers are indexed by [LSTM g, slot s, row b, column]; see `wavefront.py`. All arithmetic is in
float32. Gates, hidden values and gradients are stored in the data type of their buffers, and cell
states in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl

FORGET_BIAS = tl.constexpr(1.0)


@triton.jit
def _tanh(x, FAST: tl.constexpr):
    """Compute tanh. FAST selects a GPU instruction with 11-bit precision (bfloat16 has 8 bits)."""
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
def _dropout_factor(seed_ptr, offsets, p):
    """Return dropout factors, 0 or 1 / (1 - p), which depend only on the seed and the offsets."""
    seed = tl.load(seed_ptr)
    return tl.where(tl.rand(seed, offsets.to(tl.int32)) >= p, 1.0 / (1.0 - p), 0.0)


@triton.jit
def _carry_factor(starts_ptr, direction, step, row, n_steps, n_rows):
    """Return 0 if the row starts from the zero state at this step, otherwise 1."""
    starts = starts_ptr + (direction * n_steps + step) * n_rows + row
    return 1.0 - tl.load(starts, row < n_rows, 0).to(tl.float32)


@triton.jit
def step_cell(
    z,  # pointers to the products of gate i; those of j, f and o follow at H, 2 * H and 3 * H
    bias,
    c_before,
    mask,
    col_mask,  # the mask of the columns
    H: tl.constexpr,
    CLIP: tl.constexpr,
    FAST: tl.constexpr,
):
    """Return c_k and sigmoid(o) tanh(c_k)."""
    i = tl.load(z, mask, 0.0).to(tl.float32) + tl.load(bias, col_mask, 0.0)[None, :]
    j = tl.load(z + H, mask, 0.0).to(tl.float32) + tl.load(bias + H, col_mask, 0.0)[None, :]
    f = tl.load(z + 2 * H, mask, 0.0).to(tl.float32) + tl.load(bias + 2 * H, col_mask, 0.0)[None, :]
    o = tl.load(z + 3 * H, mask, 0.0).to(tl.float32) + tl.load(bias + 3 * H, col_mask, 0.0)[None, :]
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
    first_lstm,
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
    g = (first_lstm + tl.program_id(2)).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    mask = (rows[:, None] < n_rows) & (cols[None, :] < H)
    bias = bias_ptr + g * 4 * H + cols
    z = gates_ptr + (g * n_slots + slot) * n_rows * 4 * H + rows[:, None] * 4 * H + cols[None, :]
    offsets = rows[:, None] * H + cols[None, :]
    previous = cells_ptr + (g * (n_slots + 1) + slot) * n_rows * H + offsets
    carry = _carry_factor(starts_ptr, g % 2, slot - g // 2, rows, n_steps, n_rows)
    c_before = tl.load(previous, mask, 0.0) * carry[:, None]
    c, h = step_cell(z, bias, c_before, mask, cols < H, H, CLIP, FAST)
    tl.store(previous + n_rows * H, c, mask)
    hidden = hidden_ptr + (g * n_slots + slot) * n_rows * H + offsets
    tl.store(hidden, h.to(hidden_ptr.dtype.element_ty), mask)


@triton.jit
def output_forward(
    projected_ptr,  # (G, S, B, D)
    inputs_ptr,  # (G, S + 1, B, 2D)
    out_ptr,  # (2, T, B, D)
    starts_ptr,  # (2, T, B)
    seed_ptr,
    first_lstm,
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
    """Write r_k to the inputs of the next token, and h_k to the layer above or to the result."""
    g = (first_lstm + tl.program_id(1)).to(tl.int64)
    layer = g // 2
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_rows * D
    row, col = offsets // D, offsets % D
    projected = projected_ptr + (g * n_slots + slot) * n_rows * D + offsets
    r = tl.load(projected, mask, 0.0).to(tl.float32)
    if CLIP > 0:
        r = tl.minimum(tl.maximum(r, -CLIP), CLIP)
    step = slot - layer
    carried = r
    if step + 1 < n_steps:
        carried = r * _carry_factor(starts_ptr, g % 2, step + 1, row, n_steps, n_rows)
    dtype = inputs_ptr.dtype.element_ty
    slot_size = n_rows * 2 * D  # one slot of the inputs
    inputs = inputs_ptr + (g * (n_slots + 1) + slot) * slot_size + row * 2 * D + col
    tl.store(inputs + slot_size + D, carried.to(dtype), mask)
    y = r.to(dtype).to(tl.float32)
    if SKIP and layer > 0:
        y += tl.load(inputs, mask, 0.0).to(tl.float32)
    if DROP:
        y *= _dropout_factor(seed_ptr, ((g + 2) * n_slots + slot) * n_rows * D + offsets, p)
    if layer + 1 < n_layers:
        above = inputs + (2 * (n_slots + 1) + 1) * slot_size
        tl.store(above, y.to(dtype), mask)
    else:
        out = out_ptr + ((g % 2) * n_steps + step) * n_rows * D + offsets
        tl.store(out, y.to(out_ptr.dtype.element_ty), mask)


@triton.jit
def output_backward(
    d_out_ptr,  # (2, T, B, D)
    d_inputs_ptr,  # (G, S + 1, B, 2D)
    d_output_ptr,  # (G, 2, B, D): gradient of each output, indexed by the parity of the slot
    projected_ptr,  # (G, S, B, D): r_k before clipping, replaced by its gradient
    starts_ptr,  # (2, T, B)
    seed_ptr,
    first_lstm,
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
    """Compute the gradient of the projection's output, from the next token and the layer above."""
    g = (first_lstm + tl.program_id(1)).to(tl.int64)
    layer = g // 2
    step = slot - layer
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_rows * D
    row, col = offsets // D, offsets % D
    slot_size = n_rows * 2 * D
    next_inputs = (g * (n_slots + 1) + slot + 1) * slot_size + row * 2 * D + col
    if layer + 1 < n_layers:
        above = next_inputs + 2 * (n_slots + 1) * slot_size
        dy = tl.load(d_inputs_ptr + above, mask, 0.0).to(tl.float32)
        if SKIP:  # the layer above adds its input to its output
            skip_offsets = ((g + 2) * 2 + (slot + 1) % 2) * n_rows * D + offsets
            dy += tl.load(d_output_ptr + skip_offsets, mask, 0.0).to(tl.float32)
    else:
        loss_offsets = ((g % 2) * n_steps + step) * n_rows * D + offsets
        dy = tl.load(d_out_ptr + loss_offsets, mask, 0.0).to(tl.float32)
    if DROP:
        dy *= _dropout_factor(seed_ptr, ((g + 2) * n_slots + slot) * n_rows * D + offsets, p)
    d_output = d_output_ptr + (g * 2 + slot % 2) * n_rows * D + offsets
    tl.store(d_output, dy.to(d_output_ptr.dtype.element_ty), mask)
    if step + 1 < n_steps:
        carry = _carry_factor(starts_ptr, g % 2, step + 1, row, n_steps, n_rows)
        dy += carry * tl.load(d_inputs_ptr + next_inputs + D, mask, 0.0).to(tl.float32)
    projected = projected_ptr + (g * n_slots + slot) * n_rows * D + offsets
    if CLIP > 0:
        r = tl.load(projected, mask, 0.0).to(tl.float32)
        dy = tl.where(tl.abs(r) < CLIP, dy, 0.0)
    tl.store(projected, dy.to(projected_ptr.dtype.element_ty), mask)


@triton.jit
def cell_backward(
    gates_ptr,  # (G, S, B, 4H): the products, replaced by their gradients
    bias_ptr,  # (G, 4H)
    cells_ptr,  # (G, S + 1, B, H) float32
    d_hidden_ptr,  # (G, B, H)
    d_cell_ptr,  # (G, B, H) float32, carried from token to token
    d_bias_ptr,  # (G, row blocks, 4H) float32, summed over slots
    starts_ptr,  # (2, T, B)
    first_lstm,
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
    """Compute the gradient of the gates. Each program processes BLOCKS blocks of ROWS rows."""
    g = (first_lstm + tl.program_id(2)).to(tl.int64)
    is_last = slot - g // 2 + 1 == n_steps
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    col_mask = cols < H
    bias = bias_ptr + g * 4 * H + cols
    b_i = tl.load(bias, col_mask, 0.0)[None, :]
    b_j = tl.load(bias + H, col_mask, 0.0)[None, :]
    b_f = tl.load(bias + 2 * H, col_mask, 0.0)[None, :]
    b_o = tl.load(bias + 3 * H, col_mask, 0.0)[None, :]
    sum_i = tl.zeros((COLS,), tl.float32)
    sum_j = tl.zeros((COLS,), tl.float32)
    sum_f = tl.zeros((COLS,), tl.float32)
    sum_o = tl.zeros((COLS,), tl.float32)
    dtype = gates_ptr.dtype.element_ty
    for block in range(BLOCKS):
        rows = (tl.program_id(0) * BLOCKS + block) * ROWS + tl.arange(0, ROWS)
        mask = (rows[:, None] < n_rows) & col_mask[None, :]
        offsets = rows[:, None] * H + cols[None, :]
        z = (
            gates_ptr
            + (g * n_slots + slot) * n_rows * 4 * H
            + rows[:, None] * 4 * H
            + cols[None, :]
        )
        i = _sigmoid(tl.load(z, mask, 0.0).to(tl.float32) + b_i, FAST)
        j = _tanh(tl.load(z + H, mask, 0.0).to(tl.float32) + b_j, FAST)
        f = _sigmoid(tl.load(z + 2 * H, mask, 0.0).to(tl.float32) + b_f + FORGET_BIAS, FAST)
        o = _sigmoid(tl.load(z + 3 * H, mask, 0.0).to(tl.float32) + b_o, FAST)
        cells = cells_ptr + (g * (n_slots + 1) + slot) * n_rows * H + offsets
        carry = _carry_factor(starts_ptr, g % 2, slot - g // 2, rows, n_steps, n_rows)[:, None]
        c_before = tl.load(cells, mask, 0.0) * carry
        c = tl.load(cells + n_rows * H, mask, 0.0)
        dh = tl.load(d_hidden_ptr + g * n_rows * H + offsets, mask, 0.0).to(tl.float32)
        d_cell = d_cell_ptr + g * n_rows * H + offsets
        tanh_c = _tanh(c, FAST)
        dc = dh * o * (1.0 - tanh_c * tanh_c)
        if not is_last:
            dc += tl.load(d_cell, mask, 0.0)
        if CLIP > 0:
            dc = tl.where(tl.abs(c) < CLIP, dc, 0.0)
        tl.store(d_cell, dc * f * carry, mask)
        d_o = dh * tanh_c * o * (1.0 - o)
        d_i = dc * j * i * (1.0 - i)
        d_j = dc * i * (1.0 - j * j)
        d_f = dc * c_before * f * (1.0 - f)
        tl.store(z, d_i.to(dtype), mask)
        tl.store(z + H, d_j.to(dtype), mask)
        tl.store(z + 2 * H, d_f.to(dtype), mask)
        tl.store(z + 3 * H, d_o.to(dtype), mask)
        sum_i += tl.sum(tl.where(mask, d_i, 0.0), 0)
        sum_j += tl.sum(tl.where(mask, d_j, 0.0), 0)
        sum_f += tl.sum(tl.where(mask, d_f, 0.0), 0)
        sum_o += tl.sum(tl.where(mask, d_o, 0.0), 0)
    d_bias = d_bias_ptr + (g * tl.num_programs(0) + tl.program_id(0)) * 4 * H + cols
    if not is_last:
        sum_i += tl.load(d_bias, col_mask, 0.0)
        sum_j += tl.load(d_bias + H, col_mask, 0.0)
        sum_f += tl.load(d_bias + 2 * H, col_mask, 0.0)
        sum_o += tl.load(d_bias + 3 * H, col_mask, 0.0)
    tl.store(d_bias, sum_i, col_mask)
    tl.store(d_bias + H, sum_j, col_mask)
    tl.store(d_bias + 2 * H, sum_f, col_mask)
    tl.store(d_bias + 3 * H, sum_o, col_mask)


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
    """Copy x_k of each token from the table of types to the first layer's input, with dropout."""
    g = tl.program_id(2).to(tl.int64)
    step = tl.program_id(1)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_rows * D
    row, col = offsets // D, offsets % D
    word = tl.load(index_ptr + (g * n_steps + step) * n_rows + row, mask, 0).to(tl.int64)
    x = tl.load(types_ptr + word * D + col, mask, 0.0).to(tl.float32)
    if DROP:
        x *= _dropout_factor(seed_ptr, (g * n_slots + step) * n_rows * D + offsets, p)
    inputs = inputs_ptr + (g * (n_slots + 1) + step) * n_rows * 2 * D + row * 2 * D + col
    tl.store(inputs, x.to(inputs_ptr.dtype.element_ty), mask)


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
    """Compute the gradient of x_k for each token. The gradients of each type are summed later."""
    g = tl.program_id(2).to(tl.int64)
    step = tl.program_id(1)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_rows * D
    row, col = offsets // D, offsets % D
    source = d_inputs_ptr + (g * (n_slots + 1) + step) * n_rows * 2 * D + row * 2 * D + col
    dx = tl.load(source, mask, 0.0).to(tl.float32)
    if DROP:
        dx *= _dropout_factor(seed_ptr, (g * n_slots + step) * n_rows * D + offsets, p)
    d_x = d_x_ptr + (g * n_steps + step) * n_rows * D + offsets
    tl.store(d_x, dx.to(d_x_ptr.dtype.element_ty), mask)
