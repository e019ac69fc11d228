"""What the two language models expect in the places of a sentence, all from one reading of it.

The forward LM says w_k where it stands on w_(k-1), the backward LM where it stands on w_(k+1): both
have read nothing of w_k there, so one pass over the sentence answers for every place. What is found
is what `ElmoModel.substitutes` finds for each place by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elmokit.embed.model import ElmoModel
from elmokit.embed.precision import exact
from elmokit.embed.scoring import as_read, language_model, start_of
from elmokit.embed.substitutes import Candidate
from elmokit.model.softmax import log_uniform
from elmokit.text.vocab import BEGIN, END, SPECIALS, Vocabulary

_BLOCK = 16  # places whose probabilities of all words are held together


class Asked(NamedTuple):
    """A sentence, the places that are asked for, and how many words of each list."""

    tokens: Sequence[str]
    positions: Sequence[int]
    k: int


class Expected(NamedTuple):
    """What is expected in a place: the likeliest words, and how likely the one that is there is.

    Attributes:
        position: The place, counted from 0.
        forward: By the words to the left.
        backward: By the words to the right.
        combined: By both.
    """

    position: int
    forward: tuple[Candidate, ...]
    backward: tuple[Candidate, ...]
    combined: tuple[Candidate, ...]


def expected(model: ElmoModel, asked: Asked, state: str) -> list[Expected]:
    """List the likeliest words of each place."""
    head, vocabulary = language_model(model)
    start = start_of(model, state)
    d = model.config.lstm.projection_dim
    found: list[Expected] = []
    with model.lock, torch.inference_mode(), exact(model.device):
        layers, places, _ = model.read([[BEGIN, *as_read(asked.tokens), END]], start)
        top = layers[-1][torch.from_numpy(places[0]).to(model.device)]  # (T + 2, 2D)
        n_words = len(vocabulary)
        unigram = log_uniform(torch.arange(n_words), n_words).double().log().to(model.device)
        for first in range(0, len(asked.positions), _BLOCK):
            block = asked.positions[first : first + _BLOCK]
            stands = torch.tensor(block, device=model.device)  # w_k is row k + 1
            ahead = head(top[stands, :d]).double()
            back = head(top[stands + 2, d:]).double()
            both = torch.log_softmax(ahead + back - unigram, dim=-1)
            lists = [_likeliest(log_p, asked.k, vocabulary) for log_p in (ahead, back, both)]
            found += [Expected(*row) for row in zip(block, *lists, strict=True)]
    return found


def _likeliest(log_p: Tensor, k: int, vocabulary: Vocabulary) -> list[tuple[Candidate, ...]]:
    listed = log_p.clone()
    listed[:, [vocabulary.index(word) for word in SPECIALS]] = -torch.inf
    values, places = torch.topk(listed, min(k, len(vocabulary) - len(SPECIALS)))
    rows = zip(values.exp().tolist(), places.tolist(), strict=True)
    return [tuple(Candidate(vocabulary[w], p) for p, w in zip(*row, strict=True)) for row in rows]
