"""Bidirectional LSTMs and GRUs of task models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class VariationalDropout(nn.Module):
    """Dropout with one mask per sentence: a feature is dropped in all its tokens or in none."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        keep = x.new_empty(x.shape[0], 1, x.shape[2]).bernoulli_(1 - self.p) / (1 - self.p)
        return x * keep


class BiLstm(nn.Module):
    """Bidirectional LSTMs, each reading both directions of the one below.

    Shape:
        x (B, T, input_dim), lengths of the B sentences -> (B, T, 2 * hidden)
    """

    def __init__(self, input_dim: int, hidden: int, n_layers: int, *, dropout: float) -> None:
        super().__init__()
        self.output_dim = 2 * hidden
        self.dropout = VariationalDropout(dropout)  # between the layers
        self.layers = nn.ModuleList(
            nn.LSTM(
                input_dim if number == 0 else 2 * hidden,
                hidden,
                bidirectional=True,
                batch_first=True,
            )
            for number in range(n_layers)
        )
        for layer in self.layers:
            assert isinstance(layer, nn.LSTM)
            _initialize(layer, 4)

    def forward(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = _run(layer, self.dropout(x) if number else x, lengths)
        return x


class BiGru(nn.Module):
    """A bidirectional GRU.

    Shape:
        x (B, T, input_dim), lengths of the B texts -> (B, T, 2 * hidden); zero in the padding
    """

    def __init__(self, input_dim: int, hidden: int) -> None:
        super().__init__()
        self.output_dim = 2 * hidden
        self.gru = nn.GRU(input_dim, hidden, bidirectional=True, batch_first=True)
        _initialize(self.gru, 3)

    def forward(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        return _run(self.gru, x, lengths)


def initialize_linear_layers(model: nn.Module) -> None:
    """Initialize as published for ESIM and SQuAD; PyTorch's smaller weights learn slowly."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


def _run(rnn: nn.Module, x: Tensor, lengths: Sequence[int]) -> Tensor:
    # cuDNN does not support empty sentences.
    size = torch.tensor(lengths, device="cpu").clamp(min=1)
    packed = pack_padded_sequence(x, size, batch_first=True, enforce_sorted=False)
    h, _ = pad_packed_sequence(rnn(packed)[0], batch_first=True, total_length=x.shape[1])
    return h


@torch.no_grad()
def _initialize(rnn: nn.RNNBase, gates: int) -> None:
    """Initialize recurrent weights orthogonally, and forget gates of LSTMs to open."""
    for name, parameter in rnn.named_parameters():
        if "bias" in name:
            parameter.zero_()
            if "bias_ih" in name and isinstance(rnn, nn.LSTM):
                parameter[rnn.hidden_size : 2 * rnn.hidden_size] = 1.0
            continue
        for gate in parameter.chunk(gates):
            initialize = nn.init.orthogonal_ if "hh" in name else nn.init.xavier_uniform_
            initialize(gate)
