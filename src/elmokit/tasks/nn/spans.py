"""Spans of tokens and their antecedents, for coreference.

A span is start, ..., end - 1, counted over all tokens of a document. The K spans before a span are
its candidate antecedents, nearest first.

Notation: N tokens, n spans, W the widest span; M spans that were kept, in text order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from elmokit.tasks.nn.attention import masked_softmax

# Distances, in spans: 1, 2, 3, 4, 5-7, 8-15, 16-31, 32-63, 64 and more.
_BUCKETS = (2, 3, 4, 5, 8, 16, 32, 64)
# Pairs per chunk, so that memory does not grow with the document.
_PAIRS_AT_ONCE = 1 << 16
# If g_i * g_j of all pairs has more values, it is recomputed in the backward pass.
_KEPT_NUMBERS = 1 << 27


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


def antecedents(n: int, most: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """List the candidates of each of `n` spans.

    Returns:
        Their indices, (M, K), with K at most `most` and 0 as padding; and the mask, (M, K).
    """
    back = torch.arange(1, min(most, max(0, n - 1)) + 1, device=device)
    index = torch.arange(n, device=device).unsqueeze(1) - back
    return index.clamp(min=0), index >= 0


def marginal_loss(scores: Tensor, same: Tensor) -> Tensor:
    """Return -log of the probability that an antecedent is a gold one, summed over spans.

    For a span without gold antecedents, "no antecedent" with score 0 is correct.

    Args:
        scores: Scores of the candidates, (M, K); minus infinity as padding.
        same: True where the candidate is in the same gold cluster, (M, K).
    """
    scores = nn.functional.pad(scores, (1, 0))
    gold = torch.cat([~same.any(dim=1, keepdim=True), same], dim=1)
    right = scores.masked_fill(~gold, -torch.inf).logsumexp(dim=1)
    return (scores.logsumexp(dim=1) - right).sum()


def scorer_layers(hidden: int, dropout: float) -> list[nn.Module]:
    """Return the layers of an FFNN with two hidden layers and one output, without the first."""
    first, second = ([nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, n)] for n in (hidden, 1))
    return [*first, *second]


class PairScorer(nn.Module):
    """s_a = FFNN([g_i; g_j; g_i * g_j; phi]), phi the distance, the speakers and the genre.

    The first layer is computed as a sum over the parts of its input, so that g_i and g_j are
    multiplied by its weights once per span, not once per pair.
    """

    def __init__(
        self, dim: int, hidden: int, feature_dim: int, n_genres: int, *, dropout: float
    ) -> None:
        super().__init__()
        self.distances = nn.Embedding(1 + len(_BUCKETS), feature_dim)
        self.speakers = nn.Embedding(3, feature_dim)  # unknown, different, the same
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
            speakers: The number of the speaker of each, (M,); 0: unknown.
            genre: The number of the genre.
            index: Their candidates, (M, K).

        Returns:
            s_a, (M, K).
        """
        inputs = (g, self.anaphor(g), self.antecedent(g), self._phi(genre), speakers)
        large = torch.is_grad_enabled() and index.numel() * g.shape[1] > _KEPT_NUMBERS
        scores = []
        at_once = max(1, _PAIRS_AT_ONCE // max(1, index.shape[1]))
        for rows in torch.split(torch.arange(len(g), device=g.device), at_once):
            if large:
                s_a = checkpoint(self._score, rows, index[rows], *inputs, use_reentrant=False)
            else:
                s_a = self._score(rows, index[rows], *inputs)
            scores.append(s_a)
        return torch.cat(scores)

    def _phi(self, genre: Tensor) -> Tensor:
        """Return W phi for each distance and each case of speakers, (distances, 3, hidden)."""
        distance, speaker, kind = self.features.weight.chunk(3, dim=1)
        phi: Tensor = (
            (self.dropout(self.distances.weight) @ distance.T).unsqueeze(1)
            + self.dropout(self.speakers.weight) @ speaker.T
            + self.dropout(self.genres(genre)) @ kind.T
        )
        return phi

    def _score(
        self,
        rows: Tensor,
        index: Tensor,
        g: Tensor,
        anaphor: Tensor,
        antecedent: Tensor,
        phi: Tensor,
        speakers: Tensor,
    ) -> Tensor:
        """Score the candidates `index` of the spans `rows`, (R, K)."""
        buckets = torch.tensor(_BUCKETS, device=index.device)
        distance = torch.bucketize(rows.unsqueeze(1) - index, buckets, right=True)
        one, other = speakers[rows].unsqueeze(1), speakers[index]
        speaker = torch.where((one > 0) & (other > 0), 1 + (one == other).long(), 0)
        first = (
            anaphor[rows].unsqueeze(1)
            + antecedent[index]
            + self.product(g[rows].unsqueeze(1) * g[index])
            + phi[distance, speaker]
        )
        scores: Tensor = self.rest(first).squeeze(2)
        return scores
