"""A bidirectional GRU."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class BiGru(nn.Module):
    """A GRU in either direction, side by side.

    Shape:
        x (B, T, input_dim), lengths of the B texts -> (B, T, 2 * hidden); zero in the padding
    """

    def __init__(self, input_dim: int, hidden: int) -> None:
        super().__init__()
        self.output_dim = 2 * hidden
        self.gru = nn.GRU(input_dim, hidden, bidirectional=True, batch_first=True)
        with torch.no_grad():
            for name, parameter in self.gru.named_parameters():
                if "bias" in name:
                    parameter.zero_()
                    continue
                for gate in parameter.chunk(3):
                    initialise = nn.init.orthogonal_ if "hh" in name else nn.init.xavier_uniform_
                    initialise(gate)

    def forward(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        size = torch.tensor(lengths, device="cpu").clamp(min=1)  # cuDNN knows no empty text
        packed = pack_padded_sequence(x, size, batch_first=True, enforce_sorted=False)
        found, _ = pad_packed_sequence(
            self.gru(packed)[0], batch_first=True, total_length=x.shape[1]
        )
        return found
