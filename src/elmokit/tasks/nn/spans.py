"""Spans of tokens and their antecedents, for coreference.

A span consists of the tokens start, ..., end - 1 of a document. The K kept spans before a kept span
are its candidate antecedents, nearest first.

Notation: N tokens, n spans, W the maximum span width, M kept spans in text order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from elmokit.tasks.nn.layers import masked_softmax

# Lower bounds of all but the first bucket of distances, in spans. The buckets are 1, 2, 3, 4, 5-7,
# 8-15, 16-31, 32-63, and 64 or more.
_BUCKETS = (2, 3, 4, 5, 8, 16, 32, 64)
# Limits the memory that long documents need.
_PAIRS_PER_CHUNK = 1 << 16
# If the g_i * g_j of all pairs have more values than this, the backward pass recomputes them.
_MAX_SAVED_VALUES = 1 << 27


def all_spans(lengths: Sequence[int], width: int) -> tuple[Tensor, Tensor]:
    """List all spans of up to `width` tokens within a sentence.

    Args:
        lengths: Number of tokens in each sentence.
        width: Maximum number of tokens in a span.

    Returns:
        The starts and the ends, (n,) each; sorted by start, then by end.
    """
    sizes = torch.tensor(lengths, dtype=torch.long)
    limit = sizes.cumsum(0).repeat_interleave(sizes).unsqueeze(1)  # end of the sentence, (N, 1)
    start = torch.arange(len(limit)).unsqueeze(1)
    end = start + torch.arange(1, width + 1)  # (N, W)
    inside = end <= limit
    return start.expand_as(end)[inside], end[inside]


def keep_best(starts: Tensor, ends: Tensor, order: Iterable[int], n: int) -> list[int]:
    """Select the best spans, skipping spans that cross a better selected span.

    Two spans cross if they overlap and neither contains the other.

    Args:
        starts: The start of each span, (n,).
        ends: The end of each span, (n,).
        order: The indices of the spans, best first.
        n: Maximum number of spans to select.

    Returns:
        The indices of the selected spans, in increasing order.
    """
    first, last = starts.tolist(), ends.tolist()
    size = max(last, default=0) + 1
    latest_end = [0] * size  # of the selected spans that start at each token
    earliest_start = [size] * size  # of the selected spans that end at each token
    selected: list[int] = []
    for i in order:
        if len(selected) >= n:
            break
        start, end = first[i], last[i]
        inside = slice(start + 1, end)
        if (
            max(latest_end[inside], default=end) > end
            or min(earliest_start[inside], default=start) < start
        ):
            continue
        selected.append(i)
        latest_end[start] = max(latest_end[start], end)
        earliest_start[end] = min(earliest_start[end], start)
    return sorted(selected)


class SpanEncoder(nn.Module):
    """g = [h_start; h_last; x^; width], the vector of a span.

    The head x^ is the mean of the x_k in the span, weighted by attention over h_k.

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
        offset = torch.arange(self.widths.num_embeddings, device=h.device)
        inside = offset < (ends - starts).unsqueeze(1)  # (n, W)
        tokens = (starts.unsqueeze(1) + offset).masked_fill(~inside, 0)
        weights = masked_softmax(self.attend(h).squeeze(1)[tokens], inside)
        head = (weights.unsqueeze(1) @ x[tokens]).squeeze(1)
        return torch.cat([h[starts], h[ends - 1], head, self.widths(ends - starts - 1)], dim=1)


def antecedents(n: int, max_antecedents: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """List the candidate antecedents of each of `n` kept spans.

    Returns:
        The indices of the candidates, (n, K), with K <= `max_antecedents` and 0 as padding;
        and the mask, (n, K).
    """
    distances = torch.arange(1, min(max_antecedents, max(0, n - 1)) + 1, device=device)
    index = torch.arange(n, device=device).unsqueeze(1) - distances
    return index.clamp(min=0), index >= 0


def marginal_loss(scores: Tensor, same: Tensor) -> Tensor:
    """Return the negative log-likelihood of the gold antecedents, summed over spans.

    For a span without gold antecedents, "no antecedent" with score 0 is correct.

    Args:
        scores: Scores of the candidates, (M, K); minus infinity as padding.
        same: Whether each candidate is in the same gold cluster as the span, (M, K).
    """
    scores = nn.functional.pad(scores, (1, 0))
    gold = torch.cat([~same.any(dim=1, keepdim=True), same], dim=1)
    gold_scores = scores.masked_fill(~gold, -torch.inf)
    return (scores.logsumexp(dim=1) - gold_scores.logsumexp(dim=1)).sum()


def scorer_layers(hidden: int, dropout: float) -> list[nn.Module]:
    """Return all but the first layer of an FFNN with two hidden layers and one output."""
    first, second = ([nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, n)] for n in (hidden, 1))
    return [*first, *second]


class PairScorer(nn.Module):
    """s_a = FFNN([g_i; g_j; g_i * g_j; phi]); phi embeds the distance, the speakers and the genre.

    The first layer is computed as a sum over the parts of its input, so that g_i and g_j are
    multiplied by its weights once per span instead of once per pair.
    """

    def __init__(
        self, dim: int, hidden: int, feature_dim: int, n_genres: int, *, dropout: float
    ) -> None:
        super().__init__()
        self.distances = nn.Embedding(1 + len(_BUCKETS), feature_dim)
        self.speakers = nn.Embedding(3, feature_dim)  # unknown, different, same
        self.genres = nn.Embedding(n_genres, feature_dim)
        self.anaphor = nn.Linear(dim, hidden)
        self.antecedent = nn.Linear(dim, hidden, bias=False)
        self.product = nn.Linear(dim, hidden, bias=False)
        self.features = nn.Linear(3 * feature_dim, hidden, bias=False)
        self.dropout = nn.Dropout(dropout)
        self.rest = nn.Sequential(*scorer_layers(hidden, dropout))

    def forward(self, g: Tensor, speakers: Tensor, genre: Tensor, index: Tensor) -> Tensor:
        """Score the candidates of all spans.

        Args:
            g: The vectors of the spans, (M, dim).
            speakers: The speaker number of each span, (M,); 0 if unknown.
            genre: The genre number.
            index: The indices of the candidates of each span, (M, K).

        Returns:
            s_a, (M, K).
        """
        anaphor, antecedent, phi = self.anaphor(g), self.antecedent(g), self._phi(genre)
        buckets = torch.tensor(_BUCKETS, device=g.device)

        def score(rows: Tensor) -> Tensor:
            """Score the candidates of some spans, (R, K)."""
            candidates = index[rows]
            distance = torch.bucketize(rows.unsqueeze(1) - candidates, buckets, right=True)
            own, other = speakers[rows].unsqueeze(1), speakers[candidates]
            speaker = torch.where((own > 0) & (other > 0), 1 + (own == other).long(), 0)
            first = (
                anaphor[rows].unsqueeze(1)
                + antecedent[candidates]
                + self.product(g[rows].unsqueeze(1) * g[candidates])
                + phi[distance, speaker]
            )
            scores: Tensor = self.rest(first).squeeze(2)
            return scores

        recompute = torch.is_grad_enabled() and index.numel() * g.shape[1] > _MAX_SAVED_VALUES
        chunk = max(1, _PAIRS_PER_CHUNK // max(1, index.shape[1]))
        chunks = torch.split(torch.arange(len(g), device=g.device), chunk)
        return torch.cat(
            [checkpoint(score, c, use_reentrant=False) if recompute else score(c) for c in chunks]
        )

    def _phi(self, genre: Tensor) -> Tensor:
        """Return W phi for each pair of distance and speaker features, (distances, 3, hidden)."""
        w_distance, w_speaker, w_genre = self.features.weight.chunk(3, dim=1)
        phi: Tensor = (
            (self.dropout(self.distances.weight) @ w_distance.T).unsqueeze(1)
            + self.dropout(self.speakers.weight) @ w_speaker.T
            + self.dropout(self.genres(genre)) @ w_genre.T
        )
        return phi
