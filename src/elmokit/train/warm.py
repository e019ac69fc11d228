"""Compute the warm state: the average LSTM state at the end of a sentence."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterable
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
from elmokit.train.text import group_sentences

_ROWS = 128
#: Number of sentence ends that is sufficient for the average.
N_SENTENCES = 10_000


class WarmState(NamedTuple):
    """A warm state.

    Attributes:
        state: The LSTM state, shapes (2, L, 1, H) and (2, L, 1, D).
        sentences: Number of sentence ends that were averaged in each direction. 0 if the text was
            too short. In this case, `state` is the state after the whole text was read.
    """

    state: LstmState
    sentences: int


def average_state(
    bilm: BiLM,
    encode: Encode,
    tokens: NDArray[np.uint32],
    n_sentences: int = N_SENTENCES,
    *,
    progress: ProgressFn = no_log,
) -> WarmState:
    """Average the LSTM state of each layer and direction over the ends of sentences.

    The text is split into rows, which are read in parallel from the zero state. The first sentence
    of each row is ignored, because its state depends on the zero state.

    Args:
        bilm: The model.
        encode: A function from types to x_k; see `evaluate.make_encoder`.
        tokens: The ids of a prepared corpus.
        n_sentences: Number of sentence ends that is sufficient for the average. At most twice as
            many sentences are read.
        progress: Called with the number of tokens processed in both directions.

    Raises:
        DataError: The text contains no complete sentence.
    """
    ends = np.flatnonzero(tokens == END_ID)
    if not len(ends):
        raise DataError(
            "The text contains no complete sentence: expected at least one to compute the warm "
            "state. Use more text."
        )
    # Read twice as many sentences, because the first and the last one of each row are not averaged.
    n_read = min(len(ends), 2 * n_sentences)
    text = np.asarray(tokens[: int(ends[n_read - 1]) + 1])
    rows = max(1, min(_ROWS, len(text) // 200))
    steps = len(text) // rows
    streams = text[: rows * steps].reshape(rows, steps).T.astype(np.int64)  # (steps, rows)
    types, index = np.unique(streams, return_inverse=True)
    index, is_end = index.reshape(streams.shape), streams == END_ID
    was_training = bilm.training
    bilm.eval()
    with torch.inference_mode():
        x_types = encode(np.append(types, BEGIN_ID))
        # The forward LM reads <S> where the stream has </S>.
        forward_inputs = np.where(is_end, len(types), index)
        averages = [
            _average(bilm, 0, x_types, forward_inputs, is_end, progress),
            _average(bilm, 1, x_types, index[::-1], is_end[::-1], progress),
        ]
    bilm.train(was_training)
    cells, hiddens, counts = zip(*averages, strict=True)
    return WarmState(LstmState(torch.stack(cells).cpu(), torch.stack(hiddens).cpu()), min(counts))


def warm_state_of_text(
    bilm: BiLM,
    vocabulary: Vocabulary | None,
    sentences: Iterable[Sentence],
    n_sentences: int = N_SENTENCES,
    *,
    progress: ProgressFn = no_log,
) -> WarmState:
    """Compute the warm state from the beginning of a text.

    Args:
        bilm: The model.
        vocabulary: The vocabulary of the model, if it has one.
        sentences: The text; see `elmokit.data.reading.read_sentences`.
        n_sentences: Number of sentence ends that is sufficient for the average. At most twice as
            many sentences are read.
        progress: Called with the number of tokens processed in both directions.
    """
    # All sentences are in a single group, because `average_state` splits the text into rows.
    needed = itertools.islice(sentences, 2 * n_sentences)
    group = next(group_sentences(needed, vocabulary, sys.maxsize), None)
    if group is None:
        raise DataError("The text contains no words. Expected at least one nonempty text file.")
    encode = group.make_encoder(bilm, exact_engine(bilm), vocabulary)
    return average_state(bilm, encode, group.tokens, n_sentences, progress=progress)


def _average(
    bilm: BiLM,
    direction: int,
    x_types: torch.Tensor,
    inputs: NDArray[np.int64],
    is_end: NDArray[np.bool_],
    progress: ProgressFn,
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Average the states of a direction over all sentence ends except the first one of each row.

    Args:
        bilm: The model.
        direction: 0 for the forward LM, 1 for the backward LM.
        x_types: x_k of the types.
        inputs: For each input token, the index of its type in `x_types`, shape (steps, rows).
        is_end: Whether each token is `</S>`, shape (steps, rows).
        progress: Called with the number of tokens processed in both directions.

    Returns:
        The average cell and hidden state, and the number of sentence ends.
    """
    stack = (bilm.forward_lm, bilm.backward_lm)[direction]
    assert isinstance(stack, LstmStack)
    rows = inputs.shape[1]
    zero = LstmState.zeros(bilm.config.lstm, rows, like=x_types)
    cell, hidden = zero.cell[direction], zero.hidden[direction]
    cell_sum, hidden_sum = torch.zeros_like(cell[:, 0]), torch.zeros_like(hidden[:, 0])
    is_counted = is_end & (is_end.cumsum(axis=0) > 1)
    for step, (types, counted) in enumerate(zip(inputs, is_counted, strict=True), start=1):
        if counted.any():
            # `cell` and `hidden` are still the states after the last word of the sentence.
            counted_rows = torch.from_numpy(np.flatnonzero(counted)).to(x_types.device)
            cell_sum += cell[:, counted_rows].sum(dim=1)
            hidden_sum += hidden[:, counted_rows].sum(dim=1)
        x = x_types[torch.from_numpy(types).to(x_types.device)]
        _, cell, hidden = stack(x, [rows], cell, hidden)
        progress("warm state", direction * inputs.size + step * rows, 2 * inputs.size)
    count = int(is_counted.sum())
    if count == 0:
        return cell.mean(dim=1, keepdim=True), hidden.mean(dim=1, keepdim=True), 0
    return (cell_sum / count).unsqueeze(1), (hidden_sum / count).unsqueeze(1), count
