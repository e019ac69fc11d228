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
_LOGITS_AT_ONCE = 1 << 25  # numbers; bounds the memory of the full softmax
_TYPES_AT_ONCE = 512

#: x_k of some types, shape (n, D).
Encode = Callable[[NDArray[np.int64]], Tensor]


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


def encoder_of(bilm: BiLM, chars: NDArray[np.uint16] | None) -> Encode:
    """Return a function from types to x_k, given how every type is spelled (None: word input)."""
    device = next(bilm.parameters()).device

    def encode(types: NDArray[np.int64]) -> Tensor:
        parts = []
        for start in range(0, len(types), _TYPES_AT_ONCE):
            some = types[start : start + _TYPES_AT_ONCE]
            ids = some + 1 if chars is None else chars[some].astype(np.int64)
            parts.append(bilm.encoder(torch.from_numpy(ids).to(device)))
        return torch.cat(parts)

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
    training = bilm.training
    bilm.eval()
    units = _documents(tokens, documents) if state == "carry" else _sentences(tokens)
    start = warm if state == "warm" else None
    total = np.zeros((2, 2))  # loss by direction, over all targets and over known ones
    n_targets = n_unknown = 0
    with torch.inference_mode():
        for group in _groups(units):
            sums, unknown = _group_losses(bilm, head, encode, group, start)
            total += sums
            n_targets += sum(map(len, group))
            n_unknown += unknown
    bilm.train(training)
    means = total[:, 0] / max(1, n_targets)
    known = total[:, 1].sum() / max(1, 2 * (n_targets - n_unknown))
    return Perplexity(
        forward=math.exp(means[0]),
        backward=math.exp(means[1]),
        mean=math.exp(means.mean()),
        known=math.exp(known),
        targets=n_targets,
        unknown=n_unknown,
        state=state,
    )


def _documents(
    tokens: NDArray[np.uint32], documents: NDArray[np.int64]
) -> list[NDArray[np.uint32]]:
    runs = [tokens[a:z] for a, z in itertools.pairwise(documents)]
    return [run for run in runs if len(run)]


def _sentences(tokens: NDArray[np.uint32]) -> list[NDArray[np.uint32]]:
    ends = np.flatnonzero(tokens == END) + 1
    return [run for run in np.split(tokens, ends) if len(run)]


def _groups(units: Sequence[NDArray[np.uint32]]) -> Iterator[list[NDArray[np.uint32]]]:
    order = sorted(range(len(units)), key=lambda i: -len(units[i]))
    for start in range(0, len(order), _ROWS):
        yield [units[i] for i in order[start : start + _ROWS]]


def _group_losses(
    bilm: BiLM,
    head: LMHead,
    encode: Encode,
    group: list[NDArray[np.uint32]],
    start: LstmState | None,
) -> tuple[NDArray[np.float64], int]:
    """Sum the losses of some units that are read side by side, a stretch of steps at a time."""
    device, n_words = head.weight.device, len(head.bias)
    types, places = np.unique(np.concatenate([*group, [BEGIN, END]]), return_inverse=True)
    x_types = encode(types.astype(np.int64))
    begin, end = int(places[-2]), int(places[-1])
    runs = np.split(places[:-2], np.cumsum([len(run) for run in group])[:-1])
    words = types.astype(np.int64)
    words[words >= n_words] = UNKNOWN
    unknown = int(sum((words[run] == UNKNOWN).sum() for run in runs))
    lstm = bilm.config.lstm
    state = LstmState.zeros(lstm, len(group), like=x_types)
    if start is not None:
        state = LstmState(*(part.to(device) for part in start)).expand(len(group))
    sums = np.zeros((2, 2))
    for direction, stack in enumerate((bilm.forward_lm, bilm.backward_lm)):
        assert isinstance(stack, LstmStack)
        cell, hidden = state.cell[direction], state.hidden[direction]
        pairs = [_pairs(run, begin, end, direction) for run in runs]
        for first in range(0, max(map(len, runs)), _STEPS):
            pieces = [(i[first : first + _STEPS], t[first : first + _STEPS]) for i, t in pairs]
            # Units are sorted by falling length, so packed rows are rows.
            packing = Packing.of([len(inputs) for inputs, _ in pieces])
            inputs, targets = (_packed(packing, [p[k] for p in pieces]) for k in (0, 1))
            x = x_types[torch.from_numpy(inputs).to(device)]
            outputs, cell, hidden = stack(x, packing.active, cell, hidden)
            wanted = torch.from_numpy(words[targets]).to(device)
            losses = _losses(head, outputs[-1], wanted)
            sums[direction] += losses.sum().item(), losses[wanted != UNKNOWN].sum().item()
    return sums, unknown


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


def _losses(head: LMHead, h: Tensor, targets: Tensor) -> Tensor:
    """-log p of each target, over the full vocabulary, a bounded number of logits at a time."""
    rows = max(1, _LOGITS_AT_ONCE // len(head.bias))
    losses = [
        -head(some).gather(1, wanted.unsqueeze(1)).squeeze(1).double()
        for some, wanted in zip(h.split(rows), targets.split(rows), strict=True)  # type: ignore[no-untyped-call]
    ]
    return torch.cat(losses)
