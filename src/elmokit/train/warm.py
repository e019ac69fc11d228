"""The warm state: the average LSTM state at the end of a sentence."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.data.layout import BEGIN_ID, END_ID
from elmokit.data.reading import Sentence
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
    """A warm state.

    Attributes:
        state: Shapes (2, L, 1, H) and (2, L, 1, D).
        sentences: Number of sentence ends that were averaged in each direction; 0 if the text was
            too short, so that the state is the one at the end of the text.
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

    The text is split into rows that are read in parallel, each from the zero state; the first
    sentence of a row is ignored.

    Args:
        bilm: The model.
        encode: From types to x_k, see `evaluate.make_encoder`.
        tokens: The ids of a prepared corpus.
        sentences: Maximum number of sentence ends to average.
        progress: Called with the number of processed tokens of both directions.

    Raises:
        DataError: The text contains no sentence.
    """
    ends = np.flatnonzero(tokens == END_ID)
    if not len(ends):
        raise DataError("The warm state needs text with at least one sentence.")
    wanted = min(len(ends), 2 * sentences)  # first sentences and ends of rows are ignored
    text = np.asarray(tokens[: int(ends[wanted - 1]) + 1])
    rows = max(1, min(_ROWS, len(text) // 200))
    steps = len(text) // rows
    streams = text[: rows * steps].reshape(rows, steps).T.astype(np.int64)  # (steps, rows)
    types, places = np.unique(streams, return_inverse=True)
    text_rows = _Rows(places.reshape(streams.shape), streams == END_ID, begin=len(types))
    read = 0

    def advance(n: int) -> None:
        nonlocal read
        read += n
        progress("warm state", read, 2 * streams.size)

    training = bilm.training
    bilm.eval()
    with torch.inference_mode():
        # The forward LM reads <S> where the stream has </S>.
        x_types = encode(np.concatenate([types, [BEGIN_ID]]))
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
    """Compute the warm state from plain text, of which only the needed part is read.

    Args:
        bilm: The model.
        vocabulary: Its words, if it has any.
        sentences: The text, see `elmokit.data.reading.read_sentences`.
        wanted: Maximum number of sentence ends to average.
        progress: Called with the number of processed tokens of both directions.
    """
    # One group, because rows are slices of the complete text.
    needed = itertools.islice(sentences, 2 * wanted)
    group = next(text_groups(needed, vocabulary, group_tokens=sys.maxsize), None)
    if group is None:
        raise DataError("The text contains no words. Expected files with text.")
    encode = group.encoder(bilm, exact_engine(bilm), vocabulary)
    return average_state(bilm, encode, group.tokens, wanted, progress=progress)


class _Rows(NamedTuple):
    """Text in rows that are read in parallel.

    Attributes:
        places: The index of each token's type, shape (steps, rows).
        closings: Where it is </S>, same shape.
        begin: The index of <S>.
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
        # Before a sentence starts, the state is that at the end of the previous one.
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
