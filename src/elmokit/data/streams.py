"""Read the documents of a prepared corpus as batches.

Each row of a batch reads an infinite stream of documents, one after another. Long documents are
split (see `split_long_documents`). The forward LM reads a document from its first to its last
token, while the backward LM reads the same document from its last to its first token. At the end of
a document, the row continues with the next document in a queue that is shared by all rows. The
queue contains all documents in an order that depends on the seed and the epoch. A batch contains
the next T tokens of each row, without padding.

A prepared document is a sequence of ids, with `</S>` after each sentence. For the forward LM, the
targets are these ids, and the inputs are the ids shifted right by one, with `<S>` instead of
`</S>`:

    targets   w1  w2 .. wn  </S>  w1 ..
    inputs   <S>  w1 ..     wn   <S>  ..

For the backward LM, the inputs are the ids in reverse order, and the targets are the inputs shifted
left by one, with `<S>` instead of `</S>`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.data.layout import BEGIN_ID, END_ID
from elmokit.errors import DataError

#: Documents of up to this many tokens are never split, because training needs context.
MIN_TOKENS_TO_SPLIT = 512
# Number of batches that are built together, to reduce the overhead per document.
_BATCHES_PER_BLOCK = 32


@dataclass(frozen=True)
class StreamBatch:
    """The next T tokens of each row for the forward (index 0) and backward (index 1) LM.

    Attributes:
        inputs: Ids of the input types, shape (2, T, B).
        targets: Ids of the types to predict, shape (2, T, B).
        starts: Whether the state of the row is reset to zero before each token, shape (2, T, B).
    """

    inputs: NDArray[np.uint32]
    targets: NDArray[np.uint32]
    starts: NDArray[np.bool_]


class _Position(NamedTuple):
    """The positions of all rows.

    Attributes:
        epoch: The current epoch.
        taken: Number of documents taken from the queue in this epoch.
        document: The current document of each row, or -1 at the end of a document.
        offset: The position of each row in its document.
    """

    epoch: int
    taken: int
    document: NDArray[np.int64]
    offset: NDArray[np.int64]


class Streams:
    """An infinite iterator over batches for training. Its position can be saved and restored.

    All rows take their documents from the same queue. With several processes, each process
    therefore tracks the positions of all rows, but returns only its own rows. Together, the
    processes read the same batches as a single process.

    Args:
        tokens: The concatenated documents of a prepared corpus.
        documents: The start of each document, and the end of the last one.
        rows: B, the total number of rows of all processes.
        steps: T, the number of time steps.
        seed: Random seed for the order of documents and the restarts.
        restart: Probability that the state of a row is reset to zero at the beginning of a
            sentence. At the beginning of a document, the state is always reset.
        local_rows: The rows of this process. Default: all rows.
    """

    def __init__(
        self,
        tokens: NDArray[np.uint32],
        documents: NDArray[np.int64],
        *,
        rows: int,
        steps: int,
        seed: int = 0,
        restart: float = 0.0,
        local_rows: range | None = None,
    ) -> None:
        self._tokens, self._documents = tokens, split_long_documents(tokens, documents, rows)
        self._rows, self._steps, self._seed, self._restart = rows, steps, seed, restart
        self._local_rows = range(rows) if local_rows is None else local_rows
        self._order = functools.lru_cache(2)(self._shuffled_documents)
        zeros = np.zeros(rows, dtype=np.int64)
        self._start = _Position(0, 0, zeros - 1, zeros)  # the beginning of the current block
        self._end = self._start
        self._block_number = 0
        self._n_returned = 0  # number of batches of the current block that have been returned
        self._block: StreamBatch | None = None

    @property
    def n_documents(self) -> int:
        """Number of documents in the queue. Each part of a split document counts as one."""
        return len(self._documents) - 1

    # ------------------------------------------------------------------------------------ reading

    def __iter__(self) -> Iterator[StreamBatch]:
        return self

    def __next__(self) -> StreamBatch:
        if self._block is None:
            self._block, self._end = self._build_block()
        steps = slice(self._n_returned * self._steps, (self._n_returned + 1) * self._steps)
        batch = StreamBatch(
            np.ascontiguousarray(self._block.inputs[:, steps]),
            np.ascontiguousarray(self._block.targets[:, steps]),
            np.ascontiguousarray(self._block.starts[:, steps]),
        )
        self._n_returned += 1
        if self._n_returned == _BATCHES_PER_BLOCK:
            self._start, self._n_returned, self._block = self._end, 0, None
            self._block_number += 1
        return batch

    def _build_block(self) -> tuple[StreamBatch, _Position]:
        """Return a block of batches, and the position after it."""
        length = _BATCHES_PER_BLOCK * self._steps
        size = (2, len(self._local_rows), length)
        inputs, targets = np.empty(size, np.uint32), np.empty(size, np.uint32)
        starts = np.zeros(size, np.bool_)
        block = StreamBatch(inputs, targets, starts)
        epoch, taken, document, offset = self._start
        document, offset = document.copy(), offset.copy()
        for row in range(self._rows):
            filled = 0
            while filled < length:
                if document[row] < 0:
                    if taken == len(self._order(epoch)):
                        epoch, taken = epoch + 1, 0
                    document[row], offset[row] = self._order(epoch)[taken], 0
                    taken += 1
                begin, end = self._documents[document[row] : document[row] + 2]
                n = int(min(length - filled, end - begin - offset[row]))
                if row in self._local_rows:
                    local_row = row - self._local_rows.start
                    self._copy_tokens(
                        block, local_row, filled, n, int(document[row]), int(offset[row])
                    )
                offset[row] += n
                if offset[row] == end - begin:
                    document[row] = -1
                filled += n
        inputs[0][inputs[0] == END_ID] = BEGIN_ID
        targets[1][targets[1] == END_ID] = BEGIN_ID
        if self._restart > 0:
            is_sentence_start = np.stack([inputs[0] == BEGIN_ID, inputs[1] == END_ID])
            rng = np.random.default_rng((self._seed, 1, self._block_number))
            # Draw for all rows, so that the restarts do not depend on the number of processes.
            draws = rng.random((2, self._rows, length), dtype=np.float32)
            local_draws = draws[:, self._local_rows.start : self._local_rows.stop]
            starts |= is_sentence_start & (local_draws < self._restart)
        axes = (0, 2, 1)  # from (2, B, T) to (2, T, B)
        return (
            StreamBatch(inputs.transpose(axes), targets.transpose(axes), starts.transpose(axes)),
            _Position(epoch, taken, document, offset),
        )

    def _copy_tokens(
        self, block: StreamBatch, row: int, start: int, n: int, document: int, offset: int
    ) -> None:
        """Copy `n` tokens of a document, starting at `offset`, to a row, starting at `start`."""
        begin, end = self._documents[document : document + 2]
        inputs, targets, positions = block.inputs, block.targets, slice(start, start + n)
        forward = self._tokens[begin + offset : begin + offset + n]
        targets[0, row, positions] = forward
        inputs[0, row, start + 1 : start + n] = forward[:-1]
        inputs[0, row, start] = END_ID if offset == 0 else self._tokens[begin + offset - 1]
        backward = self._tokens[end - offset - n : end - offset][::-1]
        inputs[1, row, positions] = backward
        targets[1, row, start : start + n - 1] = backward[1:]
        last = end - offset - n
        targets[1, row, start + n - 1] = END_ID if last == begin else self._tokens[last - 1]
        if offset == 0:
            block.starts[:, row, start] = True

    def _shuffled_documents(self, epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng((self._seed, 0, epoch)).permutation(self.n_documents)

    # ------------------------------------------------------------------------------------ position

    def position(self) -> dict[str, Any]:
        """Return the position as JSON values. With the seed, it determines all later batches."""
        return {
            "documents": self.n_documents,
            "block_number": self._block_number,
            "given": self._n_returned,
            "epoch": self._start.epoch,
            "taken": self._start.taken,
            "document": self._start.document.tolist(),
            "offset": self._start.offset.tolist(),
        }

    def seek(self, position: dict[str, Any]) -> None:
        """Continue from a saved position. The corpus, rows, steps and seed must be unchanged.

        Raises:
            DataError: The number of documents has changed, or the position is invalid.
        """
        n_before = position.get("documents")
        if n_before != self.n_documents:
            raise DataError(
                f"The number of documents has changed from {n_before!r} to {self.n_documents}, "
                "because the run was started with another version of elmokit, which splits long "
                "documents differently. Start a new run in another directory."
            )
        try:
            document, offset = (np.array(position[k], np.int64) for k in ("document", "offset"))
            epoch, taken, block, n_returned = (
                int(position[k]) for k in ("epoch", "taken", "block_number", "given")
            )
            is_valid = document.shape == offset.shape == (self._rows,)
            is_valid &= min(epoch, taken, block, n_returned, *offset, *document + 1) >= 0
            is_valid &= n_returned < _BATCHES_PER_BLOCK and taken <= self.n_documents
            is_valid &= all((document < 0) | (offset < np.diff(self._documents)[document]))
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):
            is_valid = False
        if not is_valid:
            raise DataError(
                "The checkpoint contains an invalid position in the data. Remove the checkpoint "
                "and resume from an older one."
            )
        self._start = _Position(epoch, taken, document, offset)
        self._block_number, self._n_returned = block, n_returned
        self._block = None


def split_long_documents(
    tokens: NDArray[np.uint32], documents: NDArray[np.int64], rows: int
) -> NDArray[np.int64]:
    """Split long documents at sentence ends, so that all rows have text to read.

    For example, a text without empty lines is a single document, which could only fill one row.
    Documents are split if they are longer than the number of tokens per row, and longer than
    `MIN_TOKENS_TO_SPLIT`.

    Args:
        tokens: The concatenated documents.
        documents: The start of each document, and the end of the last one.
        rows: Number of rows in a batch.

    Returns:
        The start of each document or part, and the end of the last one.
    """
    max_tokens = max(MIN_TOKENS_TO_SPLIT, -(-int(documents[-1] - documents[0]) // rows))
    splits = [
        documents[i] + _split_points(tokens[documents[i] : documents[i + 1]], max_tokens)
        for i in np.flatnonzero(np.diff(documents) > max_tokens)
    ]
    return np.unique(np.concatenate([documents, *splits])) if splits else documents


def _split_points(tokens: NDArray[np.uint32], max_tokens: int) -> NDArray[np.int64]:
    """Return the sentence ends that split a document into parts of about equal length."""
    sentence_ends = np.flatnonzero(tokens == END_ID) + 1
    n_parts = -(-len(tokens) // max_tokens)
    ideal = np.arange(1, n_parts) * len(tokens) // n_parts
    index = np.searchsorted(sentence_ends, ideal)
    return sentence_ends[index[index < len(sentence_ends)]]
