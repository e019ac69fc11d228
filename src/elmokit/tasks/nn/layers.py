"""Layers of task models: bidirectional RNNs, masked attention and pooling."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

# ------------------------------------------------------------------------------------------- RNNs


class VariationalDropout(nn.Dropout1d):
    """Dropout with one mask per sentence: a feature is dropped for all tokens or for none."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


class BiLstm(nn.Module):
    """A stack of bidirectional LSTMs.

    Args:
        input_dim: Input size.
        hidden: Hidden size per direction.
        n_layers: Number of layers.
        dropout: Dropout between the layers, with one mask per sentence.

    Shape:
        x (B, T, input_dim), lengths of the B sentences -> (B, T, 2 * hidden)
    """

    def __init__(
        self, input_dim: int, hidden: int, n_layers: int = 1, *, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.output_dim = 2 * hidden
        self.dropout = VariationalDropout(dropout)
        dims = [input_dim] + [self.output_dim] * (n_layers - 1)
        layers = [nn.LSTM(dim, hidden, bidirectional=True, batch_first=True) for dim in dims]
        for layer in layers:
            _initialize(layer)
        self.layers = nn.ModuleList(layers)

    def forward(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = _run(layer, self.dropout(x) if i else x, lengths)
        return x


class BiGru(nn.Module):
    """A bidirectional GRU.

    Shape:
        x (B, T, input_dim), lengths of the B texts -> (B, T, 2 * hidden); zero for padding
    """

    def __init__(self, input_dim: int, hidden: int) -> None:
        super().__init__()
        self.output_dim = 2 * hidden
        self.gru = nn.GRU(input_dim, hidden, bidirectional=True, batch_first=True)
        _initialize(self.gru)

    def forward(self, x: Tensor, lengths: Sequence[int]) -> Tensor:
        return _run(self.gru, x, lengths)


def _run(rnn: nn.Module, x: Tensor, lengths: Sequence[int]) -> Tensor:
    # cuDNN does not support empty sentences.
    size = torch.tensor(lengths, device="cpu").clamp(min=1)
    packed = pack_padded_sequence(x, size, batch_first=True, enforce_sorted=False)
    h, _ = pad_packed_sequence(rnn(packed)[0], batch_first=True, total_length=x.shape[1])
    return h


@torch.no_grad()
def _initialize(rnn: nn.RNNBase) -> None:
    """Initialize recurrent weights orthogonally, and open the forget gates of LSTMs."""
    for name, parameter in rnn.named_parameters():
        if "bias" in name:
            parameter.zero_()
            if "bias_ih" in name and isinstance(rnn, nn.LSTM):
                parameter[rnn.hidden_size : 2 * rnn.hidden_size] = 1.0
            continue
        for gate in torch.split(parameter, rnn.hidden_size):
            initialize = nn.init.orthogonal_ if "hh" in name else nn.init.xavier_uniform_
            initialize(gate)


def initialize_linear_layers(model: nn.Module) -> None:
    """Initialize as published for ESIM and SQuAD. With PyTorch's default, training is slower."""
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


# -------------------------------------------------------------------------------------- attention


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax over the last dimension where `mask` is true, and zero elsewhere."""
    scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    return scores.softmax(dim=-1) * mask


def attend(queries: Tensor, keys: Tensor, key_mask: Tensor) -> Tensor:
    """Return, for each query, the mean of the keys, weighted by a softmax of the dot products.

    Shape:
        queries (B, S, D), keys (B, T, D), key_mask (B, T) -> (B, S, D)
    """
    scores = queries @ keys.transpose(1, 2)  # (B, S, T)
    return masked_softmax(scores, key_mask.unsqueeze(1)) @ keys


class Trilinear(nn.Module):
    """Learned similarity of two tokens (Seo et al. 2017).

    Computes u . x_i + v . y_j + w . (x_i * y_j) without materializing x_i * y_j.

    w is initialized to 1 / sqrt(dim), which gives a scaled dot product, so that equal tokens are
    similar from the first step. With random signs, their similarity would have to be learned.

    Shape:
        x (B, S, dim), y (B, T, dim) -> (B, S, T)
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.x_alone = nn.Linear(dim, 1, bias=False)
        self.y_alone = nn.Linear(dim, 1, bias=False)
        self.both = nn.Parameter(torch.full((dim,), dim**-0.5))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        products = (x * self.both) @ y.transpose(1, 2)
        scores: Tensor = products + self.x_alone(x) + self.y_alone(y).transpose(1, 2)
        return scores


# ---------------------------------------------------------------------------------------- pooling

# These functions pool token vectors into one vector per text, which is zero for an empty text.
# Shape: x (B, T, D), mask (B, T) -> (B, D)


def max_pool(x: Tensor, mask: Tensor) -> Tensor:
    """Return the maximum of each feature."""
    maximum = x.masked_fill(~mask.unsqueeze(2), torch.finfo(x.dtype).min).amax(dim=1)
    return maximum.masked_fill(~mask.any(dim=1, keepdim=True), 0.0)


def min_pool(x: Tensor, mask: Tensor) -> Tensor:
    """Return the minimum of each feature."""
    return -max_pool(-x, mask)


def mean_pool(x: Tensor, mask: Tensor) -> Tensor:
    """Return the mean of each feature."""
    total = x.masked_fill(~mask.unsqueeze(2), 0.0).sum(dim=1)
    return total / mask.sum(dim=1, keepdim=True).clamp(min=1)


class AttentivePool(nn.Module):
    """A weighted mean of token vectors; the weight of a token is computed from its vector."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weigh = nn.Linear(dim, 1)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        weights = masked_softmax(self.weigh(x).squeeze(2), mask)  # (B, T)
        return (weights.unsqueeze(1) @ x).squeeze(1)
