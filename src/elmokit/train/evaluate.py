"""Perplexity: how surprised the two language models are by held-out text, with the full softmax.

The forward LM should say every word of a sentence and then `</S>`, the backward LM every word and
then `<S>`; the symbols that open a direction are never asked for. A word that is not in the
vocabulary counts as `<UNK>`; the figure without those words is given beside. The two directions are
joined by their geometric mean, exp of the mean of both losses.

State: "carry" reads each document as one text that starts from zero, "reset" starts every sentence
from zero, "warm" every sentence from a stored state. No figure depends on how the text is batched.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.data.streams import BEGIN, END, UNKNOWN
from elmokit.model.bilm import BiLM
from elmokit.model.lstm import LstmStack, LstmState
from elmokit.model.packing import Packing
from elmokit.model.softmax import LMHead

_ROWS = 128
_STEPS = 64
_TYPES_AT_ONCE = 512

#: x_k of some types, shape (n, D).
Encode = Callable[[NDArray[np.int64]], Tensor]
#: What the token encoder reads for some types, shape (n, C) or (n,).
Spell = Callable[[NDArray[np.int64]], NDArray[np.int64]]


@dataclass(frozen=True)
class Perplexity:
    """What an evaluation found.

    Attributes:
        forward: Perplexity of the forward LM.
        backward: Perplexity of the backward LM.
        mean: Their geometric mean.
        known: The same over words of the vocabulary alone.
        targets: Words and sentence ends predicted, per direction.
        unknown: How many of them were `<UNK>`.
        state: What sentences started from.
    """

    forward: float
    backward: float
    mean: float
    known: float
    targets: int
    unknown: int
    state: str

    def to_dict(self) -> dict[str, float | int | str]:
        """Return plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.state:6} perplexity {self.mean:.2f} (forward {self.forward:.2f}, backward "
            f"{self.backward:.2f}; without <UNK> {self.known:.2f}) over {self.targets:,} targets, "
            f"{self.unknown / max(1, self.targets):.2%} unknown"
        )


class Tally:
    """Losses summed up, from which a perplexity comes.

    Attributes:
        targets: Words and sentence ends so far, per direction.
        unknown: How many of them were `<UNK>`.
    """

    def __init__(self) -> None:
        self._sums = np.zeros((2, 2))  # loss by direction, over all targets and over known ones
        self.targets = 0
        self.unknown = 0

    def add(self, losses: Losses) -> None:
        """Count the losses of a unit."""
        known = np.where(losses.unknown, 0.0, losses.values)
        self._sums += np.stack([losses.values.sum(axis=1), known.sum(axis=1)], axis=1)
        self.targets += losses.values.shape[1]
        self.unknown += int(losses.unknown[0].sum())

    def perplexity(self, state: str) -> Perplexity:
        """Return the perplexity of all that was counted."""
        means = self._sums[:, 0] / max(1, self.targets)
        known = self._sums[:, 1].sum() / max(1, 2 * (self.targets - self.unknown))
        return Perplexity(
            forward=math.exp(means[0]),
            backward=math.exp(means[1]),
            mean=math.exp(means.mean()),
            known=math.exp(known),
            targets=self.targets,
            unknown=self.unknown,
            state=state,
        )


class Losses(NamedTuple):
    """-log p of every target of a unit, in the order of the text.

    For a sentence `w1 .. wn </S>` at places a .. a + n of its unit, the forward LM's losses there
    are those of `w1 .. wn </S>` and the backward LM's those of `<S> w1 .. wn`.

    Attributes:
        values: Forward and backward, shape (2, length of the unit).
        unknown: Where the target was `<UNK>`, same shape.
    """

    values: NDArray[np.float64]
    unknown: NDArray[np.bool_]


def encoder_of(bilm: BiLM, chars: NDArray[np.uint16] | None) -> Encode:
    """Return a function from types to x_k, given how every type is spelled (None: word input)."""
    if chars is None:
        return encoder_by(bilm, lambda types: types + 1)
    return encoder_by(bilm, lambda types: chars[types].astype(np.int64))


def encoder_by(bilm: BiLM, spell: Spell) -> Encode:
    """Return a function from types to x_k, given a function that spells types."""
    device = next(bilm.parameters()).device

    def encode(types: NDArray[np.int64]) -> Tensor:
        starts = range(0, len(types), _TYPES_AT_ONCE)
        pieces = (spell(types[start : start + _TYPES_AT_ONCE]) for start in starts)
        return torch.cat([bilm.encoder(torch.from_numpy(ids).to(device)) for ids in pieces])

    return encode


def evaluate(
    bilm: BiLM,
    head: LMHead,
    encode: Encode,
    tokens: NDArray[np.uint32],
    documents: NDArray[np.int64],
    *,
    state: str = "carry",
    warm: LstmState | None = None,
) -> Perplexity:
    """Measure the perplexity of prepared text.

    Args:
        bilm: The model.
        head: Its LM head.
        encode: From types to x_k, see `encoder_of`.
        tokens: Documents as `elmo prepare` stores them.
        documents: Where each begins, and the end of the last.
        state: "carry", "reset" or "warm".
        warm: The state that "warm" starts from.
    """
    tally = Tally()
    units = units_of(tokens, documents, state)
    for _, losses in losses_of(bilm, head, encode, units, warm if state == "warm" else None):
        tally.add(losses)
    return tally.perplexity(state)


def units_of(
    tokens: NDArray[np.uint32], documents: NDArray[np.int64], state: str
) -> list[NDArray[np.uint32]]:
    """Cut text into what is read in one go: documents if the state is carried, else sentences."""
    bounds = documents if state == "carry" else np.append(0, np.flatnonzero(tokens == END) + 1)
    return [tokens[a:z] for a, z in itertools.pairwise(bounds) if z > a]


def losses_of(
    bilm: BiLM,
    head: LMHead,
    encode: Encode,
    units: Sequence[NDArray[np.uint32]],
    start: LstmState | None = None,
) -> Iterator[tuple[int, Losses]]:
    """Compute the losses of all targets, some units side by side.

    Args:
        bilm: The model.
        head: Its LM head.
        encode: From types to x_k.
        units: Runs of whole sentences that are read in one go, see `units_of`.
        start: What each unit starts from; None is the zero state.

    Yields:
        The number of each unit with its losses, the longest units first.
    """
    training = bilm.training
    bilm.eval()
    try:
        # Units of about one length waste nothing, and falling lengths make packed rows rows.
        order = sorted(range(len(units)), key=lambda i: -len(units[i]))
        for first in range(0, len(order), _ROWS):
            members = order[first : first + _ROWS]
            found = _group_losses(bilm, head, encode, [units[i] for i in members], start)
            yield from zip(members, found, strict=True)
    finally:
        bilm.train(training)


@torch.inference_mode()
def _group_losses(
    bilm: BiLM,
    head: LMHead,
    encode: Encode,
    group: list[NDArray[np.uint32]],
    start: LstmState | None,
) -> list[Losses]:
    """Read some units side by side, a stretch of steps at a time."""
    device, n_words = head.weight.device, len(head.bias)
    types, places = np.unique(np.concatenate([*group, [BEGIN, END]]), return_inverse=True)
    x_types = encode(types.astype(np.int64))
    begin, end = int(places[-2]), int(places[-1])
    ends = np.cumsum([len(run) for run in group])
    begins = np.append(0, ends[:-1])
    runs = np.split(places[:-2], ends[:-1])
    words = types.astype(np.int64)
    words[words >= n_words] = UNKNOWN
    state = LstmState.zeros(bilm.config.lstm, len(group), like=x_types)
    if start is not None:
        state = LstmState(*(part.to(device) for part in start)).expand(len(group))
    values = np.empty((2, ends[-1]))
    unknown = np.empty((2, ends[-1]), dtype=bool)
    for direction, stack in enumerate((bilm.forward_lm, bilm.backward_lm)):
        assert isinstance(stack, LstmStack)
        cell, hidden = state.cell[direction], state.hidden[direction]
        pairs = [_pairs(run, begin, end, direction) for run in runs]
        for first in range(0, max(map(len, runs)), _STEPS):
            pieces = [(i[first : first + _STEPS], t[first : first + _STEPS]) for i, t in pairs]
            packing = Packing.of([len(inputs) for inputs, _ in pieces])
            inputs, targets = (_packed(packing, [p[k] for p in pieces]) for k in (0, 1))
            x = x_types[torch.from_numpy(inputs).to(device)]
            outputs, cell, hidden = stack(x, packing.active, cell, hidden)
            wanted = words[targets]
            losses = head.losses(outputs[-1], torch.from_numpy(wanted).to(device))
            step = first + packing.steps
            # The backward LM comes from the end.
            at = ends[packing.rows] - 1 - step if direction else begins[packing.rows] + step
            values[direction, at] = losses.cpu().numpy()
            unknown[direction, at] = wanted == UNKNOWN
    cuts = ends[:-1]
    halves = zip(np.split(values, cuts, axis=1), np.split(unknown, cuts, axis=1), strict=True)
    return [Losses(*both) for both in halves]


def _pairs(
    run: NDArray[np.int64], begin: int, end: int, direction: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Make inputs and targets of one direction, as `elmokit.data.streams` describes them."""
    if direction == 0:
        inputs = np.concatenate([[end], run[:-1]])
        return np.where(inputs == end, begin, inputs), run
    back = run[::-1]
    targets = np.concatenate([back[1:], [end]])
    return back, np.where(targets == end, begin, targets)


def _packed(packing: Packing, rows: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    flat = np.concatenate(rows)
    starts = np.concatenate([[0], np.cumsum([len(row) for row in rows])[:-1]])
    packed: NDArray[np.int64] = flat[starts[packing.rows] + packing.steps]
    return packed
