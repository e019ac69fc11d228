"""Documents as endless streams, one per row of a batch, that can be saved and resumed.

Each row reads complete documents, one after another (`split_long_documents` splits long ones). The
forward LM reads a document from its first token to its last while the backward LM reads the same
document from its last token to its first. At the end of a document, the row takes the next one from
a queue, which is shuffled every epoch with (seed, epoch). A batch is the next T positions of every
row, without padding.

A prepared document is a sequence of ids `w1 .. wn </S> w1 .. wm </S> ...`, so for the forward LM

    targets   w1  w2 .. wn  </S>  w1 ..        the ids themselves
    inputs   <S>  w1 ..     wn   <S>           shifted right by one, with <S> for each </S>

The inputs of the backward LM are the ids in reverse, and its targets are the reversed ids shifted
left by one, with <S> for each </S>.
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

#: Parts of long documents have at least this many tokens, because training needs context.
MIN_PART_TOKENS = 512
# Number of batches that are prepared at once, to reduce the cost per document.
_BATCHES_PER_BLOCK = 32


@dataclass(frozen=True)
class StreamBatch:
    """T positions of every row; direction 0 is forward, 1 backward.

    Attributes:
        inputs: Input types, shape (2, T, B).
        targets: Types to predict, shape (2, T, B).
        starts: Where a row starts from the zero state, shape (2, T, B).
    """

    inputs: NDArray[np.uint32]
    targets: NDArray[np.uint32]
    starts: NDArray[np.bool_]


class _Position(NamedTuple):
    """The position of all rows.

    Attributes:
        epoch: The number of the queue of documents.
        taken: How many documents were taken from it.
        document: The document of each row; -1: it takes the next one.
        offset: The position of each row in its document.
    """

    epoch: int
    taken: int
    document: NDArray[np.int64]
    offset: NDArray[np.int64]


class Streams:
    """The rows of a training run.

    Args:
        tokens: The concatenated documents of a prepared corpus.
        documents: The start of each document, and the end of the last one.
        rows: B.
        steps: T.
        seed: Random seed for the order of documents and the restarts.
        restart: Probability that a row starts from the zero state at the beginning of a sentence.
            It always does at the beginning of a document.
        share: The rows of this process. Default: all rows. Because all rows take their documents
            from one queue, the positions of the other rows are computed as well, from the lengths
            of the documents. The rows of several processes are therefore bit-identical to those of
            one process, and a position describes all rows.
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
        share: range | None = None,
    ) -> None:
        self._tokens, self._documents = tokens, split_long_documents(tokens, documents, rows)
        self._rows, self._steps, self._seed, self._restart = rows, steps, seed, restart
        self._share = range(rows) if share is None else share
        self._order = functools.lru_cache(2)(self._shuffled)
        zeros = np.zeros(rows, dtype=np.int64)
        self._start = _Position(0, 0, zeros - 1, zeros)  # of the current block
        self._end = self._start
        self._block_number = 0
        self._n_returned = 0  # number of batches of the current block
        self._block: StreamBatch | None = None

    @property
    def n_documents(self) -> int:
        """Number of documents in the queue, after long ones were split."""
        return int(np.count_nonzero(np.diff(self._documents)))

    # ------------------------------------------------------------------------------------ reading

    def __iter__(self) -> Iterator[StreamBatch]:
        return self

    def __next__(self) -> StreamBatch:
        if self._block is None:
            self._block, self._end = self._build_block()
        at = slice(self._n_returned * self._steps, (self._n_returned + 1) * self._steps)
        batch = StreamBatch(
            np.ascontiguousarray(self._block.inputs[:, at]),
            np.ascontiguousarray(self._block.targets[:, at]),
            np.ascontiguousarray(self._block.starts[:, at]),
        )
        self._n_returned += 1
        if self._n_returned == _BATCHES_PER_BLOCK:
            self._start, self._n_returned, self._block = self._end, 0, None
            self._block_number += 1
        return batch

    def _build_block(self) -> tuple[StreamBatch, _Position]:
        """Build a block of batches, document by document; return it and the position after it."""
        length = _BATCHES_PER_BLOCK * self._steps
        size = (2, len(self._share), length)
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
                if row in self._share:
                    to = row - self._share.start
                    self._copy_positions(block, to, filled, n, int(document[row]), int(offset[row]))
                offset[row] += n
                if offset[row] == end - begin:
                    document[row] = -1
                filled += n
        inputs[0][inputs[0] == END_ID] = BEGIN_ID
        targets[1][targets[1] == END_ID] = BEGIN_ID
        if self._restart > 0:
            is_opening = np.stack([inputs[0] == BEGIN_ID, inputs[1] == END_ID])
            rng = np.random.default_rng((self._seed, 1, self._block_number))
            draws = rng.random((2, self._rows, length), dtype=np.float32)  # the same for any share
            own_draws = draws[:, self._share.start : self._share.stop]
            starts |= is_opening & (own_draws < self._restart)
        axes = (0, 2, 1)  # rows were filled one by one, batches are slices of steps
        return (
            StreamBatch(inputs.transpose(axes), targets.transpose(axes), starts.transpose(axes)),
            _Position(epoch, taken, document, offset),
        )

    def _copy_positions(
        self, block: StreamBatch, row: int, filled: int, n: int, document: int, k: int
    ) -> None:
        """Copy n positions of a document, from the k-th on, to a row after `filled` positions."""
        begin, end = self._documents[document : document + 2]
        inputs, targets, at = block.inputs, block.targets, slice(filled, filled + n)
        run = self._tokens[begin + k : begin + k + n]
        targets[0, row, at] = run
        inputs[0, row, filled + 1 : filled + n] = run[:-1]
        inputs[0, row, filled] = END_ID if k == 0 else self._tokens[begin + k - 1]
        back = self._tokens[end - k - n : end - k][::-1]
        inputs[1, row, at] = back
        targets[1, row, filled : filled + n - 1] = back[1:]
        last = end - k - n
        targets[1, row, filled + n - 1] = END_ID if last == begin else self._tokens[last - 1]
        if k == 0:
            block.starts[:, row, filled] = True

    def _shuffled(self, epoch: int) -> NDArray[np.int64]:
        lengths = np.diff(self._documents)
        order = np.random.default_rng((self._seed, 0, epoch)).permutation(len(lengths))
        return order[lengths[order] > 0]

    # ------------------------------------------------------------------------------------ position

    def position(self) -> dict[str, Any]:
        """Return the position, which determines all further batches.

        Its values are numbers and two lists with a number per row.
        """
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
        """Continue from the position of another run (with the same corpus, rows, steps and seed).

        Raises:
            DataError: The documents differ.
        """
        before = int(position["documents"])
        if before != self.n_documents:
            raise DataError(
                f"The run was started with {before:,} documents; now there are "
                f"{self.n_documents:,}, because long documents are split differently. Start a new "
                "run in another directory."
            )
        self._start = _Position(
            int(position["epoch"]),
            int(position["taken"]),
            np.array(position["document"], dtype=np.int64),
            np.array(position["offset"], dtype=np.int64),
        )
        self._block_number, self._n_returned = int(position["block_number"]), int(position["given"])
        self._block = None


def split_long_documents(
    tokens: NDArray[np.uint32], documents: NDArray[np.int64], rows: int
) -> NDArray[np.int64]:
    """Return document boundaries in the form of `documents`, with long documents split.

    If a single document made up most of the corpus (a text without empty lines is one document),
    only one row could be filled. Documents longer than a row's share of the corpus are therefore
    split at sentence ends.

    Args:
        tokens: The concatenated documents.
        documents: The start of each document, and the end of the last one.
        rows: Number of rows in a batch.
    """
    longest = max(MIN_PART_TOKENS, -(-int(documents[-1] - documents[0]) // rows))
    lengths = np.diff(documents)
    long = np.flatnonzero(lengths > longest)
    cuts = [_cuts(tokens, int(documents[i]), int(documents[i + 1]), longest) for i in long.tolist()]
    return np.unique(np.concatenate([documents, *cuts])) if cuts else documents


def _cuts(tokens: NDArray[np.uint32], begin: int, stop: int, longest: int) -> NDArray[np.int64]:
    """Return where to split one document: into parts of equal length, moved to sentence ends."""
    ends = np.flatnonzero(tokens[begin:stop] == END_ID) + begin + 1
    n = -(-(stop - begin) // longest)
    ideal = begin + np.arange(1, n) * (stop - begin) // n
    index = np.searchsorted(ends, ideal)
    return np.asarray(ends[index[index < len(ends)]], dtype=np.int64)
