"""The token encoder over the distinct words of a batch, as a few large matrix products.

A convolution over 16 channels makes poor use of a GPU. Here all filter widths are one product: each
window of `max_width` characters is a row, and narrower filters are padded with zeros. This is exact
if a word is followed by `max_width` padding characters: the windows that are left out contain only
padding, like one that is included. Words that are too long for this get no padding, and each filter
uses only the windows that fit into the columns of the word.

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
    place_ptr,  # (u, F) uint8: index of the window with the maximum
    windows_ptr,  # (F,): number of windows to use
    P: tl.constexpr,
    N: tl.constexpr,
    LIMITED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    word = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < N
    start = conv_ptr + word * P * N + cols
    best = tl.load(start, inside, 0.0).to(tl.float32)
    place = tl.zeros((BLOCK,), tl.int32)
    for window in range(1, P):
        value = tl.load(start + window * N, inside, 0.0).to(tl.float32)
        if LIMITED:
            counts = window < tl.load(windows_ptr + cols, inside, 0)
            value = tl.where(counts, value, -float("inf"))
        place = tl.where(value > best, window, place)
        best = tl.maximum(best, value)
    tl.store(out_ptr + word * N + cols, best.to(out_ptr.dtype.element_ty), inside)
    tl.store(place_ptr + word * N + cols, place.to(tl.uint8), inside)


@triton.jit
def _max_backward(
    d_out_ptr,  # (u, F)
    place_ptr,  # (u, F)
    d_conv_ptr,  # (u, P, F)
    P: tl.constexpr,
    N: tl.constexpr,
    BLOCK: tl.constexpr,
):
    word = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = cols < N
    d_out = tl.load(d_out_ptr + word * N + cols, inside, 0.0)
    place = tl.load(place_ptr + word * N + cols, inside, 0).to(tl.int32)
    start = d_conv_ptr + word * P * N + cols
    for window in range(P):
        value = tl.where(place == window, d_out, 0.0)
        tl.store(start + window * N, value.to(d_conv_ptr.dtype.element_ty), inside)


class _ConvMax(torch.autograd.Function):
    """Return the maximum of windows @ weight^T over the (first `counted`) windows.

    Shape:
        windows (u, P, K), weight (F, K), counted (F,) -> (u, F)
    """

    @staticmethod
    def forward(ctx: Any, windows: Tensor, weight: Tensor, counted: Tensor | None) -> Tensor:
        u, p, _ = windows.shape
        n = len(weight)
        conv = windows.flatten(0, 1) @ weight.t()  # (u P, F)
        out = conv.new_empty(u, n)
        place = torch.empty(u, n, dtype=torch.uint8, device=conv.device)
        block = min(1024, triton.next_power_of_2(n))
        _max_forward[(u, triton.cdiv(n, block))](
            conv,
            out,
            place,
            place if counted is None else counted,
            P=p,
            N=n,
            LIMITED=counted is not None,
            BLOCK=block,
        )
        ctx.save_for_backward(windows, weight, place)
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> Any:
        windows, weight, place = ctx.saved_tensors
        u, p, k = windows.shape
        n = len(weight)
        d_conv = d_out.new_empty(u * p, n)
        block = min(1024, triton.next_power_of_2(n))
        _max_backward[(u, triton.cdiv(n, block))](
            d_out.contiguous(), place, d_conv, P=p, N=n, BLOCK=block
        )
        d_windows = (d_conv @ weight).view(u, p, k)
        return d_windows, d_conv.t() @ windows.flatten(0, 1), None


class EncoderWeights(NamedTuple):
    """The parameters of a token encoder, in the layout and dtype of the matrix products.

    Attributes:
        encoder: The reference module.
        table: Character embeddings with a row of zeros for padding, shape (262, e).
        filters: All filters as one matrix, and their biases.
        highways: Weight and bias of the transform and of the carry of each layer.
        projection: Weight and bias of the projection, if there is one.
    """

    encoder: CharacterEncoder
    table: Tensor
    filters: tuple[Tensor, Tensor]
    highways: list[tuple[Tensor, Tensor, Tensor, Tensor]]
    projection: tuple[Tensor, Tensor] | None

    @classmethod
    def of(cls, encoder: CharacterEncoder, dtype: torch.dtype) -> EncoderWeights:
        """Convert the parameters of a token encoder; gradients flow back to them."""
        filters, biases = encoder.filter_matrix()
        highways = []
        for layer in encoder.highways:
            assert isinstance(layer, Highway)
            new, carry = layer.transform, layer.carry
            new_weight, new_bias = new.weight.to(dtype), new.bias.to(dtype)
            highways.append((new_weight, new_bias, carry.weight.to(dtype), carry.bias.to(dtype)))
        last = encoder.projection
        projection = None if last is None else (last.weight.to(dtype), last.bias.to(dtype))
        return cls(
            encoder,
            encoder.table().to(dtype),
            (filters.to(dtype), biases.to(dtype)),
            highways,
            projection,
        )


def encode_types(weights: EncoderWeights, groups: Sequence[Tensor]) -> Tensor:
    """Encode distinct words, grouped by the number of columns they need.

    Args:
        weights: The token encoder.
        groups: Character ids (u, C) of the words of each group. C is at least the length of the
            longest word of the group plus the widest filter, or the total number of columns.

    Returns:
        x of all words, in the order of the groups, shape (U, D).
    """
    encoder, config = weights.encoder, weights.encoder.config
    filters, bias = weights.filters
    pooled = []
    for ids in groups:
        counted = None
        if ids.shape[1] >= config.max_characters_per_token:
            counted = _windows_within(encoder, ids.shape[1], ids.device)
            ids = F.pad(ids, (0, config.max_width - 1))  # character 0 is no character
        windows = _windows(ids, weights.table, config.max_width)
        pooled.append(_ConvMax.apply(windows, filters, counted))
    x = torch.cat(pooled) + bias
    x = torch.relu(x) if config.activation == "relu" else torch.tanh(x)
    for new_weight, new_bias, carry_weight, carry_bias in weights.highways:
        carry = F.linear(x, carry_weight, carry_bias)
        new = F.linear(x, new_weight, new_bias)
        x = torch.lerp(x, torch.relu(new), torch.sigmoid(carry))
    return x if weights.projection is None else F.linear(x, *weights.projection)


def _windows(ids: Tensor, table: Tensor, width: int) -> Tensor:
    """Embed the characters and return every window of `width` characters as a row.

    Shape:
        ids (u, C), table (262, e) -> (u, C - width + 1, width * e)
    """
    # A product with one-hot rows instead of an embedding lookup: its gradient is a product as well,
    # whereas the gradient of a lookup adds millions of rows into 262.
    characters = torch.arange(N_CHARACTERS, device=ids.device, dtype=ids.dtype)
    one_hot = (ids.unsqueeze(-1) == characters).to(table.dtype)  # (u, C, 262)
    embedded = one_hot @ table  # (u, C, e)
    n = ids.shape[1] - width + 1
    return torch.cat([embedded[:, i : i + n] for i in range(width)], dim=2)


def _windows_within(encoder: CharacterEncoder, columns: int, device: torch.device) -> Tensor:
    """Return how many windows of each filter fit into this many columns, shape (F,)."""
    filters = encoder.config.filters
    counts = [
        torch.full((n,), columns - w + 1, dtype=torch.int32, device=device) for w, n in filters
    ]
    return torch.cat(counts)
