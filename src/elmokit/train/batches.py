"""Convert batches of text to the inputs of training steps, which encode each type only once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.data.layout import UNKNOWN_ID
from elmokit.data.streams import StreamBatch, Streams
from elmokit.model.chars import unpadded_length

_COLUMN_STEP = 8


@dataclass(frozen=True)
class Batch:
    """The inputs of one step.

    Attributes:
        types: The distinct input types, sorted by the number of character columns that they need,
            shape (U,).
        groups: The number of types for each number of columns, as pairs (columns, count), in the
            order of `types`.
        index: For each input token, the index of its type in `types`, shape (2, T, B).
        targets: The words to predict, with `<UNK>` for unknown words, shape (2, T, B).
        words: The distinct words in `targets`, shape (W,).
        starts: For each input token, whether the state of its row is reset to zero before the token
            is read, shape (2, T, B).
    """

    types: NDArray[np.int64]
    groups: list[tuple[int, int]]
    index: NDArray[np.int64]
    targets: NDArray[np.int64]
    words: NDArray[np.int64]
    starts: NDArray[np.bool_]


def needed_columns(chars: NDArray[np.uint16], max_width: int) -> NDArray[np.uint8]:
    """Return how many character columns are needed to compute x_k of each type exactly.

    The numbers are rounded up to keep the number of groups in a batch small. Long words, which are
    rare, get all columns.
    """
    n_columns = chars.shape[1]
    columns = np.empty(len(chars), dtype=np.uint8)
    for start in range(0, len(chars), 1 << 16):
        chunk = chars[start : start + (1 << 16)]
        needed = unpadded_length(chunk.astype(np.int64)) + max_width
        rounded = -(-needed // _COLUMN_STEP) * _COLUMN_STEP
        rounded[2 * rounded > n_columns + 16] = n_columns
        columns[start : start + len(chunk)] = rounded
    return columns


def make_batch(stream: StreamBatch, columns: NDArray[np.uint8], n_words: int) -> Batch:
    """Build the inputs of one step.

    Args:
        stream: The next tokens of all rows.
        columns: Number of character columns that each type needs.
        n_words: Size V of the vocabulary. Targets with ids of at least V become `<UNK>`.
    """
    types, inverse = np.unique(stream.inputs, return_inverse=True)
    needed = columns[types]
    order = np.argsort(needed, kind="stable")
    ranks = np.empty(len(types), dtype=np.int64)
    ranks[order] = np.arange(len(types))
    widths, counts = np.unique(needed, return_counts=True)
    targets = stream.targets.astype(np.int64)
    targets[targets >= n_words] = UNKNOWN_ID
    return Batch(
        types=types[order].astype(np.int64),
        groups=list(zip(widths.tolist(), counts.tolist(), strict=True)),
        index=ranks[inverse.reshape(stream.inputs.shape)],
        targets=targets,
        words=np.unique(targets),
        starts=stream.starts,
    )


def read_batches(
    streams: Streams, columns: NDArray[np.uint8], n_words: int
) -> Iterator[tuple[Batch, dict[str, Any]]]:
    """Yield an infinite sequence of batches, each with the position of the streams after it.

    Batches are prefetched, so a checkpoint must store the position after the last batch that was
    used, not the current position of the streams.
    """
    for stream in streams:
        yield make_batch(stream, columns, n_words), streams.position()
