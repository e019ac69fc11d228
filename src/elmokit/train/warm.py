"""The warm state: the average LSTM state at the end of a sentence."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.data.reading import Sentence
from elmokit.data.streams import BEGIN, END
from elmokit.errors import DataError
from elmokit.model.bilm import BiLM
from elmokit.model.engine import exact_engine
from elmokit.model.lstm import LstmStack, LstmState
from elmokit.progress import ProgressFn, no_log
from elmokit.text.vocab import Vocabulary
from elmokit.train.evaluate import Encode
from elmokit.train.text import text_groups

_ROWS = 128
SENTENCES = 10_000


class WarmState(NamedTuple):
    """A warm state and what it stands on.

    Attributes:
        state: Shapes (2, L, 1, H) and (2, L, 1, D).
        sentences: How many sentence ends were averaged in each direction; 0 if the text was too
            short for any, and the state is only where its rows ended.
    """

    state: LstmState
    sentences: int


def average_state(
    bilm: BiLM,
    encode: Encode,
    tokens: NDArray[np.uint32],
    sentences: int = SENTENCES,
    *,
    progress: ProgressFn = no_log,
) -> WarmState:
    """Average (c, r) of each layer and direction over the ends of sentences in running text.

    The text is cut into rows that are read side by side, each from the zero state; a row's first
    sentence does not count.

    Args:
        bilm: The model.
        encode: From types to x_k, see `evaluate.encoder_of`.
        tokens: Text as `elmo prepare` stores it.
        sentences: Sentence ends to average over, if the text has as many.
        progress: Called with how many tokens are read, of those in both directions.

    Raises:
        DataError: There is no sentence.
    """
    ends = np.flatnonzero(tokens == END)
    if not len(ends):
        raise DataError("A warm state needs text with at least one sentence.")
    wanted = min(len(ends), 2 * sentences)  # first sentences and row ends are lost
    text = np.asarray(tokens[: int(ends[wanted - 1]) + 1])
    rows = max(1, min(_ROWS, len(text) // 200))
    steps = len(text) // rows
    streams = text[: rows * steps].reshape(rows, steps).T.astype(np.int64)  # (steps, rows)
    types, places = np.unique(streams, return_inverse=True)
    text_rows = _Rows(places.reshape(streams.shape), streams == END, begin=len(types))
    read = 0

    def advance(n: int) -> None:
        nonlocal read
        read += n
        progress("warm state", read, 2 * streams.size)

    training = bilm.training
    bilm.eval()
    with torch.inference_mode():
        # The forward LM reads <S> where the stream has </S>.
        x_types = encode(np.concatenate([types, [BEGIN]]))
        halves = [_average(bilm, x_types, text_rows, direction, advance) for direction in (0, 1)]
    bilm.train(training)
    state = LstmState(*(torch.stack(part).cpu() for part in list(zip(*halves, strict=True))[:2]))
    return WarmState(state, min(count for _, _, count in halves))


def warm_state_of_text(
    bilm: BiLM,
    vocabulary: Vocabulary | None,
    sentences: Iterable[Sentence],
    wanted: int = SENTENCES,
    *,
    progress: ProgressFn = no_log,
) -> WarmState:
    """Make the warm state from plain text; no more of it is read than is needed.

    Args:
        bilm: The model.
        vocabulary: Its words, if it has any.
        sentences: The text, see `elmokit.data.reading.read_sentences`.
        wanted: Sentence ends to average over.
        progress: Called with how many tokens are read, of those in both directions.
    """
    # One group: rows are cut from the text as a whole.
    needed = itertools.islice(sentences, 2 * wanted)
    group = next(text_groups(needed, vocabulary, group_tokens=sys.maxsize), None)
    if group is None:
        raise DataError("There are no words in the text. Give files with text.")
    encode = group.encoder(bilm, exact_engine(bilm), vocabulary)
    return average_state(bilm, encode, group.tokens, wanted, progress=progress)


class _Rows(NamedTuple):
    """Text that is read in rows side by side.

    Attributes:
        places: The number of each token's type, shape (steps, rows).
        closings: Where it is </S>, same shape.
        begin: The number of <S>.
    """

    places: NDArray[np.int64]
    closings: NDArray[np.bool_]
    begin: int


def _average(
    bilm: BiLM,
    x_types: torch.Tensor,
    text: _Rows,
    direction: int,
    advance: Callable[[int], None],
) -> tuple[torch.Tensor, torch.Tensor, int]:
    stack = (bilm.forward_lm, bilm.backward_lm)[direction]
    assert isinstance(stack, LstmStack)
    places, closings, begin = text
    if direction == 1:
        places, closings = places[::-1], closings[::-1]
    rows = places.shape[1]
    zero = LstmState.zeros(bilm.config.lstm, rows, like=x_types)
    cell, hidden = zero.cell[direction], zero.hidden[direction]
    sums = [torch.zeros_like(cell[:, 0]), torch.zeros_like(hidden[:, 0])]
    count = 0
    seen = np.zeros(rows, dtype=bool)
    for row, closing in zip(places, closings, strict=True):
        # Before a sentence is opened, the state is that of the end of the one before.
        counted = closing & seen
        if counted.any():
            where = torch.from_numpy(np.flatnonzero(counted)).to(x_types.device)
            sums[0] += cell[:, where].sum(dim=1)
            sums[1] += hidden[:, where].sum(dim=1)
            count += int(counted.sum())
        seen |= closing
        read = np.where(closing, begin, row) if direction == 0 else row
        x = x_types[torch.from_numpy(read).to(x_types.device)]
        _, cell, hidden = stack(x, [rows], cell, hidden)
        advance(rows)
    if count == 0:
        return cell.mean(dim=1, keepdim=True), hidden.mean(dim=1, keepdim=True), 0
    return (sums[0] / count).unsqueeze(1), (sums[1] / count).unsqueeze(1), count
