"""Check that the padding of a batch is at the end of its rows."""

from __future__ import annotations

import torch
from torch import Tensor

from elmokit.errors import DataError


def right_padded(mask: Tensor, remedy: str) -> Tensor:
    """Return the length of each row; raise an error for padding before the last token.

    Shape:
        (B, T) -> (B,)
    """
    lengths = mask.sum(dim=1)
    wrong = (mask != positions_up_to(lengths, mask.shape[1])).any(dim=1)
    if wrong.any():
        raise DataError(
            f"Row {int(wrong.nonzero()[0, 0])} of the batch has padding before its last token, "
            f"which AllenNLP would misread. Padding must be at the end of a row: {remedy}."
        )
    return lengths


def positions_up_to(lengths: Tensor, size: int) -> Tensor:
    """(B,) -> (B, size), True at each row's first positions."""
    return torch.arange(size, device=lengths.device) < lengths.unsqueeze(1)
