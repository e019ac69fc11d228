"""Measure the perplexity of both language models on held-out text, with the full softmax.

The forward LM predicts each word of a sentence and `</S>`, and the backward LM predicts each word
and `<S>`. Words that are not in the vocabulary count as `<UNK>`. The perplexity without these words
is reported as well. The mean of both directions is the geometric mean of their perplexities.

The initial LSTM state is zero at the beginning of each document ("carry") or each sentence
("reset"), or the warm state of the model at the beginning of each sentence ("warm"). Results do not
depend on how the text is batched.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.data.layout import BEGIN_ID, END_ID, UNKNOWN_ID
from elmokit.model.engine import Engine
from elmokit.model.lstm import LstmState
from elmokit.model.scoring import Losses, Scorer, TextTypes

#: A function from types to x_k, shape (n, D).
Encode = Callable[[NDArray[np.int64]], Tensor]


@dataclass(frozen=True)
class Perplexity:
    """The result of an evaluation.

    Attributes:
        forward: Perplexity of the forward LM.
        backward: Perplexity of the backward LM.
        mean: The geometric mean of both perplexities.
        known: The geometric mean of both perplexities, without the targets that are `<UNK>`.
        targets: Number of predicted words and sentence boundaries, per direction.
        unknown: Number of targets that were `<UNK>`.
        state: The initial state: "carry", "reset" or "warm".
    """

    forward: float
    backward: float
    mean: float
    known: float
    targets: int
    unknown: int
    state: str

    def to_dict(self) -> dict[str, float | int | str]:
        """Return the result as JSON values."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.state:6} perplexity {self.mean:.2f} (forward {self.forward:.2f}, backward "
            f"{self.backward:.2f}; without <UNK> {self.known:.2f}) over {self.targets:,} targets, "
            f"{self.unknown / max(1, self.targets):.2%} unknown"
        )


class LossSums:
    """Sums losses to compute a perplexity.

    Attributes:
        targets: Number of predicted words and sentence boundaries so far, per direction.
        unknown: Number of targets that were `<UNK>`.
    """

    def __init__(self) -> None:
        # For each direction, the sums over all targets and over those that are not <UNK>.
        self._sums = np.zeros((2, 2))
        self.targets = 0
        self.unknown = 0

    def add(self, losses: Losses) -> None:
        """Add the losses of a text."""
        known = np.where(losses.unknown, 0.0, losses.values)
        self._sums += np.stack([losses.values.sum(axis=1), known.sum(axis=1)], axis=1)
        self.targets += losses.values.shape[1]
        self.unknown += int(losses.unknown[0].sum())

    def perplexity(self, state: str) -> Perplexity:
        """Return the perplexity of all texts added so far.

        Args:
            state: The initial state to store in the result.
        """
        means = self._sums[:, 0] / max(1, self.targets)
        known = self._sums[:, 1].sum() / max(1, 2 * (self.targets - self.unknown))
        return Perplexity(
            forward=_exp(means[0]),
            backward=_exp(means[1]),
            mean=_exp(means.mean()),
            known=_exp(known),
            targets=self.targets,
            unknown=self.unknown,
            state=state,
        )


def _exp(loss: float) -> float:
    """Return the exponential of a loss, or infinity if the loss is too large."""
    with np.errstate(over="ignore"):
        return float(np.exp(loss))


def make_encoder(engine: Engine, chars: NDArray[np.uint16] | None) -> Encode:
    """Return a function from types to x_k.

    Args:
        engine: The engine that runs the model.
        chars: The character ids of all types; None for a model that reads words.
    """

    def encode(types: NDArray[np.int64]) -> Tensor:
        ids = types + 1 if chars is None else chars[types].astype(np.int64)
        return engine.encode(torch.from_numpy(ids))

    return encode


def make_text_types(encode: Encode, n_words: int) -> TextTypes:
    """Return the types of prepared text for a head with `n_words` words."""

    def target_words(types: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.where(types < n_words, types, UNKNOWN_ID)

    return TextTypes(encode, target_words, BEGIN_ID, END_ID, UNKNOWN_ID)


def evaluate(
    scorer: Scorer,
    types: TextTypes,
    tokens: NDArray[np.uint32],
    documents: NDArray[np.int64],
    *,
    state: str = "carry",
    warm: LstmState | None = None,
) -> Perplexity:
    """Measure the perplexity of prepared text.

    Args:
        scorer: The scorer of the model.
        types: The types of the text; see `make_text_types`.
        tokens: The ids of a prepared corpus.
        documents: The start of each document, and the end of the last one.
        state: The initial state: "carry", "reset" or "warm".
        warm: The warm state, for `state="warm"`.
    """
    sums = LossSums()
    sequences = split_sequences(tokens, documents, state)
    for _, losses in scorer.losses(types, sequences, warm if state == "warm" else None):
        sums.add(losses)
    return sums.perplexity(state)


def split_sequences(
    tokens: NDArray[np.uint32], documents: NDArray[np.int64], state: str
) -> list[NDArray[np.uint32]]:
    """Split text into documents for `state="carry"`, otherwise into sentences."""
    bounds = documents if state == "carry" else np.append(0, np.flatnonzero(tokens == END_ID) + 1)
    return [tokens[start:end] for start, end in itertools.pairwise(bounds) if end > start]
