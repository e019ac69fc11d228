"""Encode the distinct words of a batch with a few large matrix products.

A convolution over 16 channels does not use a GPU efficiently. Here, the filters of all widths are
computed as one matrix product: each window of `max_width` characters is a row, and narrower filters
are padded with zeros. The result is exact if each word is followed by `max_width` padding
characters: the omitted windows contain only padding, and so does one of the windows that are
included. For words with less padding, each filter uses only the windows that fit into the columns.

The reference implementation is `elmokit.model.charcnn.CharacterEncoder`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from elmokit.model.charcnn import CharacterEncoder, Highway
from elmokit.model.chars import N_CHARACTERS


@triton.jit
def _max_forward(
    conv_ptr,  # (u, P, F)
    out_ptr,  # (u, F)
    argmax_ptr,  # (u, F) uint8: index of the window with the maximum
    n_windows_ptr,  # (F,): number of windows to use
    P: tl.constexpr,  # number of windows per word
    N: tl.constexpr,  # F
    LIMITED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    word = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    start = conv_ptr + word * P * N + cols
    largest = tl.load(start, mask, 0.0).to(tl.float32)
    argmax = tl.zeros((BLOCK,), tl.int32)
    for window in range(1, P):
        value = tl.load(start + window * N, mask, 0.0).to(tl.float32)
        if LIMITED:
            is_used = window < tl.load(n_windows_ptr + cols, mask, 0)
            value = tl.where(is_used, value, -float("inf"))
        argmax = tl.where(value > largest, window, argmax)
        largest = tl.maximum(largest, value)
    tl.store(out_ptr + word * N + cols, largest.to(out_ptr.dtype.element_ty), mask)
    tl.store(argmax_ptr + word * N + cols, argmax.to(tl.uint8), mask)


@triton.jit
def _max_backward(
    d_out_ptr,  # (u, F)
    argmax_ptr,  # (u, F)
    d_conv_ptr,  # (u, P, F)
    P: tl.constexpr,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
):
    word = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = cols < N
    d_out = tl.load(d_out_ptr + word * N + cols, mask, 0.0)
    argmax = tl.load(argmax_ptr + word * N + cols, mask, 0).to(tl.int32)
    start = d_conv_ptr + word * P * N + cols
    for window in range(P):
        value = tl.where(argmax == window, d_out, 0.0)
        tl.store(start + window * N, value.to(d_conv_ptr.dtype.element_ty), mask)


class _ConvMax(torch.autograd.Function):
    """The maximum of windows @ weight^T over the first `n_windows` windows of each word.

    Shape:
        windows (u, P, K), weight (F, K), n_windows (F,) or None for all windows -> (u, F)
    """

    @staticmethod
    def forward(ctx: Any, windows: Tensor, weight: Tensor, n_windows: Tensor | None) -> Tensor:
        u, p, _ = windows.shape
        n = len(weight)
        conv = windows.flatten(0, 1) @ weight.t()  # (u P, F)
        out = conv.new_empty(u, n)
        argmax = torch.empty(u, n, dtype=torch.uint8, device=conv.device)
        block = min(1024, triton.next_power_of_2(n))
        _max_forward[(u, triton.cdiv(n, block))](
            conv,
            out,
            argmax,
            argmax if n_windows is None else n_windows,
            P=p,
            N=n,
            LIMITED=n_windows is not None,
            BLOCK=block,
        )
        ctx.save_for_backward(windows, weight, argmax)
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Any:
        windows, weight, argmax = ctx.saved_tensors
        u, p, k = windows.shape
        n = len(weight)
        d_conv = d_out.new_empty(u * p, n)
        block = min(1024, triton.next_power_of_2(n))
        _max_backward[(u, triton.cdiv(n, block))](
            d_out.contiguous(), argmax, d_conv, P=p, N=n, BLOCK=block
        )
        d_windows = (d_conv @ weight).view(u, p, k)
        return d_windows, d_conv.t() @ windows.flatten(0, 1), None


class EncoderWeights(NamedTuple):
    """The parameters of a token encoder, in the layout and data type of the matrix products.

    Attributes:
        encoder: The reference module.
        table: Character embeddings with a row of zeros for padding positions, shape (262, e).
        filters: All filters as one matrix, and their biases.
        highways: For each highway layer, the weight and bias of the transform, and those of the
            carry gate.
        projection: Weight and bias of the projection, if the model has one.
    """

    encoder: CharacterEncoder
    table: Tensor
    filters: tuple[Tensor, Tensor]
    highways: list[tuple[Tensor, Tensor, Tensor, Tensor]]
    projection: tuple[Tensor, Tensor] | None

    @classmethod
    def of(cls, encoder: CharacterEncoder, dtype: torch.dtype) -> EncoderWeights:
        """Convert the parameters of a token encoder. The conversion is differentiable."""
        filters, biases = encoder.filter_matrix()
        highways = []
        for layer in encoder.highways:
            assert isinstance(layer, Highway)
            linears = (layer.transform, layer.carry)
            (w, b), (w_carry, b_carry) = ((m.weight.to(dtype), m.bias.to(dtype)) for m in linears)
            highways.append((w, b, w_carry, b_carry))
        linear = encoder.projection
        projection = None if linear is None else (linear.weight.to(dtype), linear.bias.to(dtype))
        return cls(
            encoder,
            encoder.table().to(dtype),
            (filters.to(dtype), biases.to(dtype)),
            highways,
            projection,
        )


def encode_types(weights: EncoderWeights, groups: Sequence[Tensor]) -> Tensor:
    """Encode distinct words, which are grouped by number of columns.

    Args:
        weights: The token encoder.
        groups: Character ids (u, C) of the words of each group. C is at least the length of the
            longest word of the group plus the width of the widest filter, unless C is the maximum
            number of characters per token.

    Returns:
        x of all words, in the order of the groups, shape (U, D).
    """
    encoder, config = weights.encoder, weights.encoder.config
    filters, bias = weights.filters
    pooled = []
    for ids in groups:
        n_windows = None
        if ids.shape[1] >= config.max_characters_per_token:
            n_windows = _count_windows(encoder, ids.shape[1], ids.device)
            ids = F.pad(ids, (0, config.max_width - 1))  # the embedding of id 0 is zero
        windows = _windows(ids, weights.table, config.max_width)
        pooled.append(_ConvMax.apply(windows, filters, n_windows))
    x = torch.cat(pooled) + bias
    x = torch.relu(x) if config.activation == "relu" else torch.tanh(x)
    for w, b, w_carry, b_carry in weights.highways:
        carry = F.linear(x, w_carry, b_carry)
        transformed = F.linear(x, w, b)
        x = torch.lerp(x, torch.relu(transformed), torch.sigmoid(carry))
    return x if weights.projection is None else F.linear(x, *weights.projection)


def _windows(ids: Tensor, table: Tensor, width: int) -> Tensor:
    """Embed the characters and return each window of `width` characters as a row.

    Shape:
        ids (u, C), table (262, e) -> (u, C - width + 1, width * e)
    """
    # Multiply one-hot rows by the table instead of looking up embeddings. The gradient is then also
    # a product, whereas the gradient of a lookup would add millions of rows to 262 rows.
    characters = torch.arange(N_CHARACTERS, device=ids.device, dtype=ids.dtype)
    one_hot = (ids.unsqueeze(-1) == characters).to(table.dtype)  # (u, C, 262)
    embedded = one_hot @ table  # (u, C, e)
    n = ids.shape[1] - width + 1
    return torch.cat([embedded[:, i : i + n] for i in range(width)], dim=2)


def _count_windows(encoder: CharacterEncoder, columns: int, device: torch.device) -> Tensor:
    """Return the number of windows of each filter that fit into `columns` columns, shape (F,)."""
    filters = encoder.config.filters
    counts = [
        torch.full((n,), columns - w + 1, dtype=torch.int32, device=device) for w, n in filters
    ]
    return torch.cat(counts)
