"""Attention that never looks at padding."""

from __future__ import annotations

import torch
from torch import Tensor


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Softmax over the last dimension, where `mask` is true; all zero where nothing is."""
    hidden = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return hidden.softmax(dim=-1) * mask


def attend(queries: Tensor, keys: Tensor, key_mask: Tensor) -> Tensor:
    """Return for each query the mean of the keys, weighted by how alike they are.

    Shape:
        queries (B, S, D), keys (B, T, D), key_mask (B, T) -> (B, S, D)
    """
    alike = queries @ keys.transpose(1, 2)  # (B, S, T)
    return masked_softmax(alike, key_mask.unsqueeze(1)) @ keys
