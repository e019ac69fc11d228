"""Spans of tokens: enumeration, selection of the best non-crossing ones, and their vectors.

A span is start, ..., end - 1, counted over all tokens of a document.
n spans, N tokens, W the widest span.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from elmokit.tasks.nn.attention import masked_softmax


def all_spans(lengths: Sequence[int], width: int) -> tuple[Tensor, Tensor]:
    """List all spans of up to `width` tokens within a sentence.

    Args:
        lengths: Tokens in each sentence.
        width: Maximum number of tokens in a span.

    Returns:
        The starts and the ends, (n,) each; sorted by start, then by end.
    """
    sizes = torch.tensor(lengths, dtype=torch.long)
    limit = sizes.cumsum(0).repeat_interleave(sizes).unsqueeze(1)  # where its sentence ends, (N, 1)
    start = torch.arange(len(limit)).unsqueeze(1)
    end = start + torch.arange(1, width + 1)  # (N, W)
    inside = end <= limit
    return start.expand_as(end)[inside], end[inside]


def keep_best(starts: Tensor, ends: Tensor, order: Iterable[int], n: int) -> list[int]:
    """Choose spans from best to worst, skipping those that cross a better one.

    Two spans cross if they overlap and neither contains the other.

    Args:
        starts: Where the spans begin.
        ends: Where they end.
        order: The numbers of the spans, best first.
        n: Maximum number of spans to choose.

    Returns:
        The numbers of the chosen spans, in increasing order.
    """
    first, last = starts.tolist(), ends.tolist()
    beyond = max(last, default=0) + 1
    furthest = [0] * beyond  # the end of the longest chosen span that starts here
    earliest = [beyond] * beyond  # the start of the longest chosen span that ends here
    chosen: list[int] = []
    for number in order:
        if len(chosen) >= n:
            break
        start, end = first[number], last[number]
        if end - start > 1:
            inner = slice(start + 1, end)
            if max(furthest[inner]) > end or min(earliest[inner]) < start:
                continue
        chosen.append(number)
        furthest[start] = max(furthest[start], end)
        earliest[end] = min(earliest[end], start)
    return sorted(chosen)


class SpanEncoder(nn.Module):
    """g = [h_start; h_last; x^; width]: both ends in context, the head, the size.

    The head x^ is a mean of the x_k in the span, weighted by attention over h_k.

    Attributes:
        dim: The size of g.
    """

    def __init__(self, h_dim: int, x_dim: int, width: int, feature_dim: int) -> None:
        super().__init__()
        self.attend = nn.Linear(h_dim, 1)
        self.widths = nn.Embedding(width, feature_dim)
        self.dim = 2 * h_dim + x_dim + feature_dim

    def forward(self, h: Tensor, x: Tensor, starts: Tensor, ends: Tensor) -> Tensor:
        """Return a vector for each span.

        Shape:
            h (N, h_dim), x (N, x_dim), starts (n,), ends (n,) -> (n, dim)
        """
        place = torch.arange(self.widths.num_embeddings, device=h.device)
        inside = place < (ends - starts).unsqueeze(1)  # (n, W)
        tokens = (starts.unsqueeze(1) + place).masked_fill(~inside, 0)
        weights = masked_softmax(self.attend(h).squeeze(1)[tokens], inside)
        head = (weights.unsqueeze(1) @ x[tokens]).squeeze(1)
        return torch.cat([h[starts], h[ends - 1], head, self.widths(ends - starts - 1)], dim=1)
