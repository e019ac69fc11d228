"""`.parquet` files: one row per token, for pandas, DuckDB, Spark and others.

sentence       number of the sentence, from 0 (one without tokens has no row)
token_index    number of the token in its sentence, from 0
token          the token
file, line     where the sentence stood: index of the input file, number of the line
start, end     where the token stood in that line; null for tokenised input
vector         2D numbers; or for all layers `layer_0`, `layer_1`, ...

A row group is a part and never cuts a sentence. Needs the extra `arrow`.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elmokit.bulk.files.layout import Layout
from elmokit.bulk.files.part import Part, decode_strings
from elmokit.bulk.files.reading import (
    DESCRIPTION,
    StoredSentence,
    StoredVectors,
    describe,
    read_description,
)
from elmokit.errors import DataError, optional_imports


def check_available() -> None:
    """Raise if pyarrow is not installed."""
    with optional_imports("arrow", "A .parquet file"):
        import pyarrow.parquet  # noqa: F401


def write(path: Path, parts: Sequence[Part], layout: Layout, about: dict[str, Any]) -> None:
    """Write the vectors of a corpus."""
    check_available()
    import pyarrow as pa
    import pyarrow.parquet as pq

    sentences = sum(part.sentences for part in parts)
    description = describe(layout, {**about, "sentences": sentences})
    schema = _schema(layout).with_metadata({DESCRIPTION: description})
    first = 0
    options = writer_options(schema.names, layout)
    with path.open("wb") as file, pq.ParquetWriter(file, schema, **options) as writer:
        for part in parts:
            if part.tokens:
                columns = columns_of(part, first, layout)
                writer.write_table(pa.table(columns, schema=schema), row_group_size=part.tokens)
            first += part.sentences


def writer_options(names: Sequence[str], layout: Layout) -> dict[str, Any]:
    """Return how columns of these names are stored."""
    vectors = vector_names(layout)
    plain = [name for name in names if name not in vectors]
    return {
        "use_dictionary": plain,
        "write_statistics": plain,
        # Vectors are noise to a compressor; the other columns are small.
        "compression": {name: "none" if name in vectors else "zstd" for name in names},
    }


def vector_names(layout: Layout) -> list[str]:
    """Return the names of the columns with the vectors."""
    if layout.layer != "all":
        return ["vector"]
    return [f"layer_{j}" for j in range(layout.n_layers)]


def _schema(layout: Layout) -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("sentence", pa.int64(), nullable=False),
            pa.field("token_index", pa.int32(), nullable=False),
            pa.field("token", pa.string(), nullable=False),
            pa.field("file", pa.int32(), nullable=False),
            pa.field("line", pa.int64(), nullable=False),
            pa.field("start", pa.int64()),
            pa.field("end", pa.int64()),
            *vector_fields(layout),
        ]
    )


def vector_fields(layout: Layout) -> list[Any]:
    """Return the columns of a schema that hold the vectors."""
    import pyarrow as pa

    number = pa.float16() if layout.dtype == "float16" else pa.float32()
    return [pa.field(name, pa.list_(number, layout.shape[-1])) for name in vector_names(layout)]


def columns_of(part: Part, first: int, layout: Layout) -> dict[str, Any]:
    """Return the columns of a part, whose first sentence has the number `first`."""
    import pyarrow as pa

    lengths = part.read("lengths")
    tokens = decode_strings(part.read("tokens"), np.cumsum(part.read("token_lengths")), drop=1)
    begins = np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = np.repeat(part.read("places"), lengths, axis=0)
    columns: dict[str, Any] = {
        "sentence": np.repeat(first + np.arange(part.sentences), lengths),
        "token_index": (np.arange(part.tokens) - begins).astype(np.int32),
        "token": _strings(tokens),
        "file": places[:, 0].astype(np.int32),
        "line": places[:, 1],
    }
    if part.has_spans:
        spans = part.read("spans")
        columns |= {"start": spans[:, 0], "end": spans[:, 1]}
    else:
        columns |= {name: pa.nulls(part.tokens, pa.int64()) for name in ("start", "end")}
    vectors = part.read("vectors").reshape(part.tokens, -1, layout.shape[-1])
    for j, name in enumerate(vector_names(layout)):
        flat = pa.array(np.ascontiguousarray(vectors[:, j]).reshape(-1))
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, layout.shape[-1])
    return columns


def _strings(tokens: list[str]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(tokens, pa.string())
    except UnicodeEncodeError as error:
        raise DataError(
            f"The token {error.object!r} holds a lone surrogate, which a .parquet file cannot "
            "store. Clean the text, or choose .h5, .npz or .safetensors."
        ) from error


def vectors_of(table: Any, begin: int, end: int, layout: Layout) -> NDArray[np.floating[Any]]:
    """Return the vectors of some rows of a table in one piece, shape (T, *layout.shape)."""
    dim, names = layout.shape[-1], vector_names(layout)
    vectors = np.empty((end - begin, len(names), dim), dtype=layout.dtype)
    for j, name in enumerate(names if end > begin else ()):
        values = table.column(name).chunk(0).slice(begin, end - begin).flatten()
        vectors[:, j] = values.to_numpy(zero_copy_only=False).reshape(-1, dim)
    return vectors.reshape(end - begin, *layout.shape)


def read(path: Path) -> StoredVectors:
    """Open a file."""
    return ParquetVectors(path)


class ParquetVectors(StoredVectors):
    """The reader; it holds one row group at a time."""

    def __init__(self, path: Path) -> None:
        check_available()
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            self._file = pq.ParquetFile(path, memory_map=True)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"it is not a whole Parquet file ({error})") from error
        metadata = self._file.schema_arrow.metadata or {}
        layout, about = read_description(metadata.get(DESCRIPTION.encode()))
        super().__init__(path, layout, about, int(about.pop("sentences", 0)))
        if set(self._file.schema_arrow.names) < {"sentence", "token", *vector_names(layout)}:
            raise DataError("columns are missing in it")
        groups = [self._file.metadata.row_group(g) for g in range(self._file.num_row_groups)]
        # The last sentence of each row group, by which the group of a sentence is found.
        self._lasts = [group.column(0).statistics.max for group in groups]
        self._held: tuple[int, NDArray[np.int64], Any] | None = None

    def _read(self, index: int) -> StoredSentence:
        group = bisect.bisect_left(self._lasts, index)
        if group == len(self._lasts):  # no tokens, after all that have some
            return self._sentence([], vectors_of(None, 0, 0, self.layout))
        sentences, table = self._group(group)
        begin, end = np.searchsorted(sentences, [index, index + 1]).tolist()
        tokens = table.column("token").slice(begin, end - begin).to_pylist()
        return self._sentence(tokens, vectors_of(table, begin, end, self.layout))

    def _group(self, group: int) -> tuple[NDArray[np.int64], Any]:
        if self._held is None or self._held[0] != group:
            self._held = None  # so that two groups are never in memory
            columns = ["sentence", "token", *vector_names(self.layout)]
            table = self._file.read_row_group(group, columns=columns).combine_chunks()
            self._held = (group, table.column("sentence").to_numpy(), table)
        return self._held[1], self._held[2]

    def close(self) -> None:
        """Close the file."""
        self._held = None
        self._file.close()
