"""Build the inputs of a training step from positions of a stream; each distinct word once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.data.layout import UNKNOWN_ID
from elmokit.data.streams import StreamBatch, Streams
from elmokit.model.chars import spelled_length

_COLUMN_STEP = 8


@dataclass(frozen=True)
class Batch:
    """The inputs of one step.

    Attributes:
        types: The distinct input types, sorted by the columns they need, shape (U,).
        groups: (columns, number of types that need them), in that order.
        index: The position in `types` of each input, shape (2, T, B).
        targets: Words to predict, unknown ones as `<UNK>`, shape (2, T, B).
        words: The distinct words among `targets`, shape (W,).
        starts: Where a row starts from the zero state, shape (2, T, B).
    """

    types: NDArray[np.int64]
    groups: list[tuple[int, int]]
    index: NDArray[np.int64]
    targets: NDArray[np.int64]
    words: NDArray[np.int64]
    starts: NDArray[np.bool_]


def needed_columns(chars: NDArray[np.uint16], max_width: int) -> NDArray[np.uint8]:
    """Return how many character columns each type needs for an exact x.

    Words that need more than half of all columns are rare and get all of them.
    """
    total = chars.shape[1]
    columns = np.empty(len(chars), dtype=np.uint8)
    for start in range(0, len(chars), 1 << 16):
        part = chars[start : start + (1 << 16)]
        needed = spelled_length(part.astype(np.int64)) + max_width
        stepped = -(-needed // _COLUMN_STEP) * _COLUMN_STEP
        columns[start : start + len(part)] = np.where(2 * stepped > total + 16, total, stepped)
    return columns


def make_batch(stream: StreamBatch, columns: NDArray[np.uint8], n_words: int) -> Batch:
    """Build the inputs of one step.

    Args:
        stream: The next positions of the rows.
        columns: Character columns that each type needs.
        n_words: V: as targets, types >= V are `<UNK>`.
    """
    types, inverse = np.unique(stream.inputs, return_inverse=True)
    needed = columns[types]
    order = np.argsort(needed, kind="stable")
    place = np.empty(len(types), dtype=np.int64)
    place[order] = np.arange(len(types))
    widths, counts = np.unique(needed, return_counts=True)
    targets = stream.targets.astype(np.int64)
    targets[targets >= n_words] = UNKNOWN_ID
    return Batch(
        types=types[order].astype(np.int64),
        groups=list(zip(widths.tolist(), counts.tolist(), strict=True)),
        index=place[inverse.reshape(stream.inputs.shape)],
        targets=targets,
        words=np.unique(targets),
        starts=stream.starts,
    )


def read_batches(
    streams: Streams, columns: NDArray[np.uint8], n_words: int
) -> Iterator[tuple[Batch, dict[str, Any]]]:
    """Yield batches without end, each with the position of the streams after it.

    A checkpoint with the position of the last batch *used* loses nothing of what was built ahead.
    """
    for stream in streams:
        yield make_batch(stream, columns, n_words), streams.position()
