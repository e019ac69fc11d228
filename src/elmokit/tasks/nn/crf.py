"""A linear-chain conditional random field (CRF), and the tags of the BIO and BIOES schemes.

The CRF computes one score for an entire sequence of labels:

    score(y) = start[y_1] + sum_k emission_k[y_k] + sum_k transition[y_k, y_{k+1}] + end[y_T]
    p(y) = exp(score(y)) / Z

Forbidden label sequences do not contribute to Z, and are decoded only if no sequence is allowed.
All functions process the sentences of a batch in parallel, token by token.

Notation: B sentences, T tokens, K labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from elmokit.errors import DataError
from elmokit.tasks.metrics.spans import OUTSIDE

# The score of forbidden transitions. It is finite, so that no gradient becomes NaN.
_FORBIDDEN = -1e4
# Limits the transition matrix, whose size is quadratic in the number of tags.
_MAX_TAGS = 2048


class AllowedTransitions(NamedTuple):
    """The allowed transitions between labels, as boolean masks.

    Attributes:
        transitions: Whether the second label may follow the first, (K, K).
        start: Whether a sequence may begin with the label, (K,).
        end: Whether a sequence may end with the label, (K,).
    """

    transitions: Tensor
    start: Tensor
    end: Tensor


def build_tag_set(types: Sequence[str], scheme: str) -> list[str]:
    """Return all tags of the scheme "BIO" or "BIOES" for span types, starting with O."""
    prefixes = scheme.replace(OUTSIDE, "")
    tags = [OUTSIDE, *(f"{prefix}-{type_}" for type_ in types for prefix in prefixes)]
    if len(tags) > _MAX_TAGS:
        raise DataError(
            f"Too many entity types or roles ({len(types):,}, which need {len(tags):,} tags): "
            f"expected at most {_MAX_TAGS:,} tags. Check the labels in the training data."
        )
    return tags


def allowed_transitions(tags: Sequence[str], scheme: str) -> AllowedTransitions:
    """Return the transitions that a scheme allows between tags."""
    last_prefixes = "OES" if scheme == "BIOES" else "OBI"  # of tags that O may follow

    def may_follow(previous: str, tag: str) -> bool:
        if tag[0] in "IE":
            return previous[0] in "BI" and previous[2:] == tag[2:]
        return previous[0] in last_prefixes

    return AllowedTransitions(
        torch.tensor([[may_follow(previous, tag) for tag in tags] for previous in tags]),
        torch.tensor([may_follow(OUTSIDE, tag) for tag in tags]),
        torch.tensor([tag[0] in last_prefixes for tag in tags]),
    )


class Crf(nn.Module):
    """A conditional random field layer.

    Args:
        allowed: The allowed transitions.
    """

    _transitions: Tensor
    _start: Tensor
    _end: Tensor

    def __init__(self, allowed: AllowedTransitions) -> None:
        super().__init__()
        n_labels = len(allowed.start)
        self.transitions = nn.Parameter(torch.empty(n_labels, n_labels))
        self.start = nn.Parameter(torch.empty(n_labels))
        self.end = nn.Parameter(torch.empty(n_labels))
        nn.init.xavier_normal_(self.transitions)
        nn.init.normal_(self.start, std=0.1)
        nn.init.normal_(self.end, std=0.1)
        # The masks are not stored with the weights, because they can be derived from the labels.
        self.register_buffer("_transitions", allowed.transitions, persistent=False)
        self.register_buffer("_start", allowed.start, persistent=False)
        self.register_buffer("_end", allowed.end, persistent=False)

    def forward(self, emissions: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Return -log p(labels) of each sentence.

        Shape:
            emissions (B, T, K), labels (B, T), mask (B, T) -> (B,)
        """
        return self.log_partition(emissions, mask) - self.score(emissions, labels, mask)

    def score(self, emissions: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
        """Return the score of the label sequence of each sentence, (B,)."""
        transitions, start, end = self._scores()
        is_token = mask.to(emissions.dtype)
        emission = (emissions.gather(2, labels.unsqueeze(2)).squeeze(2) * is_token).sum(dim=1)
        transition = (transitions[labels[:, :-1], labels[:, 1:]] * is_token[:, 1:]).sum(dim=1)
        last = labels.gather(1, (mask.sum(dim=1, keepdim=True) - 1).clamp(min=0)).squeeze(1)
        return start[labels[:, 0]] + emission + transition + end[last]

    def log_partition(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Return log Z of each sentence, (B,), computed with the forward algorithm.

        The algorithm runs from both ends of each sentence to the middle. This halves the number of
        sequential steps, which determines the run time on a GPU.
        """
        transitions, start, end = self._scores()
        length = mask.sum(dim=1)
        n_right = length // 2
        n_left = length - n_right
        k = torch.arange((emissions.shape[1] + 1) // 2, device=emissions.device)
        from_end = (length.unsqueeze(1) - 1 - k).clamp(min=0)  # (B, T / 2)
        backward = emissions.gather(1, from_end.unsqueeze(2).expand(-1, -1, emissions.shape[2]))
        both = torch.stack([emissions[:, : len(k)], backward])  # (2, B, T / 2, K)
        is_token = k < torch.stack([n_left, n_right]).unsqueeze(2)
        both_transitions = torch.stack([transitions, transitions.T]).unsqueeze(1)
        # Log of the sum over all paths from either end to the current token, (2, B, K).
        alpha = torch.stack([start, end]).unsqueeze(1) + both[:, :, 0]
        steps, masks = both.unbind(dim=2), is_token.unsqueeze(3).unbind(dim=2)
        for step in range(1, len(k)):
            paths = torch.logsumexp(alpha.unsqueeze(3) + both_transitions, dim=2) + steps[step]
            alpha = torch.where(masks[step], paths, alpha)
        a, b = alpha
        joined = torch.logsumexp((a.unsqueeze(2) + transitions + b.unsqueeze(1)).flatten(1), dim=1)
        # With one token, the right half is empty.
        return torch.where(n_right > 0, joined, torch.logsumexp(a + end, dim=1))

    def decode(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Return the best allowed label sequence of each sentence, (B, T); 0 for padding.

        If all label sequences of a sentence are forbidden, the one with the best score is returned.
        """
        return viterbi(emissions, mask, *self._scores())

    def _scores(self) -> tuple[Tensor, Tensor, Tensor]:
        return (
            self.transitions.masked_fill(~self._transitions, _FORBIDDEN),
            self.start.masked_fill(~self._start, _FORBIDDEN),
            self.end.masked_fill(~self._end, _FORBIDDEN),
        )


@torch.no_grad()
def viterbi(
    emissions: Tensor, mask: Tensor, transitions: Tensor, start: Tensor, end: Tensor
) -> Tensor:
    """Return the best label sequence of each sentence (Viterbi algorithm); 0 for padding.

    Shape:
        emissions (B, T, K), mask (B, T), transitions (K, K), start (K,), end (K,) -> (B, T)
    """
    best = start + emissions[:, 0]
    identity = torch.arange(best.shape[1], device=best.device)
    pointers = []
    for k in range(1, emissions.shape[1]):
        score, pointer = (best.unsqueeze(2) + transitions).max(dim=1)  # (B, K)
        is_token = mask[:, k : k + 1]
        best = torch.where(is_token, score + emissions[:, k], best)
        # For padding, each label points to itself.
        pointers.append(torch.where(is_token, pointer, identity))
    label = (best + end).argmax(dim=1, keepdim=True)  # (B, 1)
    labels = [label]
    for pointer in reversed(pointers):
        label = pointer.gather(1, label)
        labels.append(label)
    return torch.cat(labels[::-1], dim=1) * mask
