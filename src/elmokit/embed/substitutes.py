"""The words that the language models predict at a position of a sentence.

The forward LM predicts the word from the left context, and the backward LM from the right context.
Neither of them reads the word itself. The combined prediction is

    p(w | left, right)  ~  p_forward(w | left) * p_backward(w | right) / p(w)

which is exact if left and right are independent given w. Both factors contain the prior p(w), so
the product is divided by it once. The result is normalized over the vocabulary.

p(w) is estimated with the log-uniform distribution from which training draws the negative samples,
P(k) = log((k + 2) / (k + 1)) / log(V + 1) for the word at index k of the vocabulary. This
distribution is close to the word frequencies, because `elmo prepare` sorts the vocabulary by
frequency.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from elmokit.embed.precision import exact_products
from elmokit.embed.scoring import language_model, lm_inputs
from elmokit.errors import ConfigError
from elmokit.model.softmax import log_uniform
from elmokit.text.marked import MarkedWord
from elmokit.text.vocab import BEGIN, END, SPECIALS, Vocabulary

if TYPE_CHECKING:
    from elmokit.embed.model import ElmoModel

_BLOCK = 16  # number of positions to compute at once


@dataclass(frozen=True)
class Candidate:
    """A word and its probability."""

    word: str
    probability: float


@dataclass(frozen=True, repr=False)
class Substitutes:
    """The words that the language models predict at a position.

    Attributes:
        tokens: The sentence.
        position: The position in the sentence, counted from 0.
        forward: The words that the forward LM predicts, most probable first.
        backward: The words that the backward LM predicts, most probable first.
        combined: The words with the highest combined probability, most probable first.
        state: The initial state of the language models.
    """

    tokens: tuple[str, ...]
    position: int
    forward: tuple[Candidate, ...]
    backward: tuple[Candidate, ...]
    combined: tuple[Candidate, ...]
    state: str = "reset"

    @property
    def word(self) -> str:
        """The word at the position."""
        return self.tokens[self.position]

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-serializable dictionary."""
        return asdict(self)

    def __repr__(self) -> str:
        words = ", ".join(candidate.word for candidate in self.combined[:5])
        return f"<Substitutes for '{self.word}': {words}{', ...' if self.combined[5:] else ''}>"

    def __str__(self) -> str:
        """Return a table with one column per list."""
        columns = [
            [name, *(f"{c.probability:7.4f} {c.word}" for c in getattr(self, name))]
            for name in ("forward", "backward", "combined")
        ]
        widths = [max(map(len, column)) for column in columns]
        rows = zip_longest(*columns, fillvalue="")
        table = (
            "   ".join(f"{cell:<{w}}" for cell, w in zip(row, widths, strict=True)) for row in rows
        )
        sentence = MarkedWord(self.tokens, self.position).format()
        return "\n".join([sentence, *(row.rstrip() for row in table)])


def substitutes_at(
    model: ElmoModel,
    tokens: Sequence[str],
    positions: Sequence[int],
    k: int,
    *,
    state: str = "reset",
    specials: bool = False,
) -> list[Substitutes]:
    """Return the most probable words at several positions of a sentence, which is embedded once.

    The forward LM predicts w_k from its output at w_(k-1), and the backward LM from its output at
    w_(k+1), so neither of them has read w_k.
    """
    head, vocabulary = language_model(model)
    if k < 1:
        raise ConfigError(f"Invalid value for k: {k}. Expected an integer of at least 1.")
    n_words = len(vocabulary)
    initial = model.initial_state(state)
    unigram = log_uniform(torch.arange(n_words), n_words).double().log().to(model.device)
    d = model.config.lstm.projection_dim
    results: list[Substitutes] = []
    with model.lock, torch.inference_mode(), exact_products(model.device):
        top = model.contextualize([BEGIN, *lm_inputs(tokens), END], initial)[-1]  # (T + 2, 2D)
        for first in range(0, len(positions), _BLOCK):
            block = positions[first : first + _BLOCK]
            rows = torch.tensor(block, device=model.device)  # w_k is row k + 1
            forward = head(top[rows, :d]).double()
            backward = head(top[rows + 2, d:]).double()
            combined = torch.log_softmax(forward + backward - unigram, dim=-1)
            lists = [
                _most_probable(log_p, k, vocabulary, specials=specials)
                for log_p in (forward, backward, combined)
            ]
            results += [
                Substitutes(tuple(tokens), position, from_left, from_right, both, state)
                for position, from_left, from_right, both in zip(block, *lists, strict=True)
            ]
    return results


def _most_probable(
    log_p: Tensor, k: int, vocabulary: Vocabulary, *, specials: bool
) -> list[tuple[Candidate, ...]]:
    scores = log_p.clone()
    if not specials:
        scores[:, [vocabulary.index(word) for word in SPECIALS]] = -torch.inf
    n_candidates = len(vocabulary) - (0 if specials else len(SPECIALS))
    values, words = torch.topk(scores, min(k, n_candidates))
    rows = zip(values.exp().tolist(), words.tolist(), strict=True)
    return [tuple(Candidate(vocabulary[w], p) for p, w in zip(*row, strict=True)) for row in rows]
