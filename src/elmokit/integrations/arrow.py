"""Convert vectors to Arrow tables without copying, for pandas and polars.

    to_arrow(out)                       a `pyarrow.Table` with one row per token
    to_pandas(out), to_polars(out)      data frames that share memory with the vectors
    from_arrow(table)                   `SentenceVectors` from a table or data frame

The columns are the same as in the Parquet files of `elmo embed`: `sentence`, `token_index`,
`token`, `start` and `end` (null for tokenized input), and the vectors as fixed-size lists:
`layer_0`, `layer_1`, ..., or `vector` for one vector per token. The rows of each sentence form one
chunk of the table, which shares memory with the vectors of the sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.vectors import FloatArray, SentenceVectors
from elmokit.errors import DataError, join_names, optional_imports
from elmokit.progress import plural

with optional_imports("arrow", "Arrow output"):
    import pyarrow as pa

_LAYER = "layer_"
_COLUMNS = ("sentence", "token_index", "token", "start", "end")


def to_arrow(
    vectors: SentenceVectors | Sequence[SentenceVectors],
    *,
    layer: str | int = "all",
    mix: Sequence[float] | None = None,
    gamma: float = 1.0,
) -> pa.Table:
    """Return vectors as a table, one row per token.

    Args:
        vectors: The result of `embed`.
        layer: A layer number, "top", "average", "concat" or "mix", for one vector per token in the
            column `vector`; or "all", for one column per layer.
        mix: With layer "mix": the weights s, one per layer, not normalized.
        gamma: With layer "mix": the scale.

    Returns:
        A table with one chunk per non-empty sentence. Columns that contain a single layer share
        memory with `vectors`, which must not be modified afterward.
    """
    items = [vectors] if isinstance(vectors, SentenceVectors) else list(vectors)
    if not items:
        raise DataError(
            "vectors is empty: expected at least one sentence, which determines the columns."
        )
    choice = LayerChoice.parse(layer, len(items[0].layers), mix, gamma)
    batches = [_batch(item, index, choice) for index, item in enumerate(items)]
    return pa.Table.from_batches([b for b in batches if b.num_rows], schema=batches[0].schema)


def _batch(vectors: SentenceVectors, index: int, choice: LayerChoice) -> pa.RecordBatch:
    n_tokens = len(vectors)
    offsets: Sequence[tuple[int | None, int | None]] = vectors.offsets or [(None, None)] * n_tokens
    columns: dict[str, Any] = {
        "sentence": pa.array(np.full(n_tokens, index, np.int64)),
        "token_index": pa.array(np.arange(n_tokens, dtype=np.int32)),
        "token": _strings(vectors.tokens),
        "start": pa.array([start for start, _ in offsets], pa.int64()),
        "end": pa.array([end for _, end in offsets], pa.int64()),
    }
    if choice.name == "all":
        columns |= {f"{_LAYER}{j}": _lists(h) for j, h in enumerate(vectors.layers)}
    else:
        columns["vector"] = _lists(choice.apply(vectors.layers))
    return pa.record_batch(columns)


def to_pandas(vectors: SentenceVectors | Sequence[SentenceVectors], **options: Any) -> Any:
    """Return a `pandas.DataFrame` whose Arrow columns share memory with the vectors.

    Args:
        vectors: The result of `embed`.
        options: `layer`, `mix` and `gamma`, as in `to_arrow`.
    """
    with optional_imports(None, "pandas output"):
        import pandas as pd
    return to_arrow(vectors, **options).to_pandas(types_mapper=pd.ArrowDtype)


def to_polars(vectors: SentenceVectors | Sequence[SentenceVectors], **options: Any) -> Any:
    """Return a `polars.DataFrame` that shares memory with the vectors. Strings are copied.

    Args:
        vectors: The result of `embed`.
        options: `layer`, `mix` and `gamma`, as in `to_arrow`.
    """
    with optional_imports(None, "polars output"):
        import polars as pl
    return pl.from_arrow(to_arrow(vectors, **options), rechunk=False)


def matrix(column: Any) -> FloatArray:
    """Return a column of vectors as an array (n, D), without copying if there is a single chunk.

    Args:
        column: A column of a table or data frame. A pandas column must have an Arrow data type.
    """
    if not isinstance(column, pa.Array | pa.ChunkedArray):
        # Columns of pandas 3 and later support this protocol.
        is_stream = hasattr(column, "__arrow_c_stream__")
        column = pa.chunked_array(column) if is_stream else pa.array(column)
    if not pa.types.is_fixed_size_list(column.type) or column.null_count:
        raise DataError(
            "A column of vectors must contain fixed-size lists and no nulls; got "
            f"{column.type} with {plural(column.null_count, 'null')}."
        )
    dim = column.type.list_size
    empty = np.empty((0, dim), np.float32)
    chunks = [column] if isinstance(column, pa.Array) else column.chunks
    arrays = [chunk.flatten().to_numpy(zero_copy_only=True).reshape(-1, dim) for chunk in chunks]
    vectors: FloatArray = arrays[0] if len(arrays) == 1 else np.concatenate([empty, *arrays])
    return vectors


def from_arrow(table: Any) -> list[SentenceVectors]:
    """Return the sentences of a table that contains all layers.

    The vectors are copied to one array per sentence. Sentences without tokens have no rows in the
    table; they are restored unless they are at the end.

    Args:
        table: A table or data frame from `to_arrow`, `to_pandas` or `to_polars`.
    """
    table = pa.table(table)
    names = [name for name in table.column_names if name.startswith(_LAYER)]
    expected = {*_COLUMNS, *(f"{_LAYER}{j}" for j in range(max(len(names), 1)))}
    if missing := sorted(expected - set(table.column_names)):
        raise DataError(
            f"The table has the columns {join_names(table.column_names)}, but not "
            f"{join_names(missing)}. Create it with to_arrow and layer='all'."
        )
    sentence_indices = table.column("sentence").to_numpy()
    if (np.diff(sentence_indices) < 0).any():
        raise DataError("The rows are not sorted by the column 'sentence'. Sort them first.")
    layers = [matrix(table.column(f"{_LAYER}{j}")) for j in range(len(names))]
    tokens = table.column("token").to_pylist()
    starts, ends = (table.column(name).to_pylist() for name in ("start", "end"))
    last = int(sentence_indices[-1]) if len(sentence_indices) else -1
    boundaries = np.searchsorted(sentence_indices, np.arange(last + 2)).tolist()
    sentences = []
    for first, end in pairwise(boundaries):
        offsets = list(zip(starts[first:end], ends[first:end], strict=True))
        has_offsets = all(start is not None for start, _ in offsets)
        h = np.stack([layer[first:end] for layer in layers])
        sentences.append(SentenceVectors(tokens[first:end], offsets if has_offsets else None, h))
    return sentences


def _lists(rows: FloatArray) -> pa.FixedSizeListArray:
    flat = pa.array(np.ascontiguousarray(rows).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, rows.shape[1])


def _strings(tokens: list[str]) -> Any:
    try:
        return pa.array(tokens, pa.string())
    except UnicodeEncodeError as error:
        raise DataError(
            f"The token {error.object!r} contains a lone surrogate, which Arrow cannot store. "
            "Clean the text first."
        ) from error
