"""`.parquet` files: one row per token, for pandas, DuckDB, Spark and others.

sentence       number of the sentence, from 0 (one without tokens has no row)
token_index    number of the token in its sentence, from 0
token          the token
file, line     where the sentence stood: index of the input file, number of the line
start, end     where the token stood in that line; null for tokenized input
vector         2D numbers; or for all layers `layer_0`, `layer_1`, ...

A shard of a folder has `document`, the name of the input, in place of `file`, and `sentence` is the
number of the sentence in its line. A row group never cuts a sentence. Needs the extra `arrow`.
"""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.bulk.formats.block import Block
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.reading import (
    DESCRIPTION,
    About,
    StoredSentence,
    StoredVectors,
    describe,
    read_description,
)
from elmokit.errors import DataError, optional_imports

# Tokens in a row group, about: what a reader holds in memory.
_GROUP_TOKENS = 16384


def check_available() -> None:
    """Raise if pyarrow is not installed."""
    with optional_imports("arrow", "A .parquet file"):
        import pyarrow.parquet  # noqa: F401


def write(path: Path, blocks: Iterable[Block], layout: Layout, about: About) -> None:
    """Write the vectors of a corpus."""
    check_available()
    first = 0
    with path.open("wb") as file, _open_writer(file, _schema(layout), layout) as writer:
        for block in blocks:
            numbers = np.arange(first, first + block.sentences)
            sentence = np.repeat(numbers, block.read("lengths"))
            _write_rows(writer, block, layout, {"sentence": sentence})
            first += block.sentences
        description = describe(layout, {**about(), "sentences": first})
        writer.add_key_value_metadata({DESCRIPTION: description})


def write_shard(
    file: IO[bytes], block: Block, layout: Layout, documents: Sequence[str], notes: dict[str, Any]
) -> None:
    """Write a shard of a folder, one row per token.

    Args:
        file: The file.
        block: The vectors.
        layout: What they are.
        documents: The names of all documents.
        notes: JSON values for the footer.
    """
    import pyarrow as pa

    names = pa.array(documents, pa.string())
    with _open_writer(file, _shard_schema(layout), layout) as writer:
        documents_of = np.repeat(block.read("places")[:, 0], block.read("lengths"))
        _write_rows(writer, block, layout, {"document": names.take(pa.array(documents_of))})
        writer.add_key_value_metadata({name: json.dumps(note) for name, note in notes.items()})


def _open_writer(file: IO[bytes], schema: Any, layout: Layout) -> Any:
    import pyarrow.parquet as pq

    vectors = vector_names(layout)
    plain = [name for name in schema.names if name not in vectors]
    return pq.ParquetWriter(
        file,
        schema,
        use_dictionary=plain,
        write_statistics=plain,
        # Vectors are noise to a compressor; the other columns are small.
        compression={name: "none" if name in vectors else "zstd" for name in schema.names},
        write_page_checksum=True,
    )


def _write_rows(writer: Any, block: Block, layout: Layout, own: dict[str, Any]) -> None:
    """Write the rows of a block, in row groups that hold whole sentences.

    Args:
        writer: The file.
        block: The block.
        layout: What its vectors are.
        own: The columns that this kind of file has of its own.
    """
    import pyarrow as pa

    if not block.tokens:
        return
    columns = {**_columns_of(block, layout), **own}
    schema = writer.schema
    table = pa.table({name: columns[name] for name in schema.names}, schema=schema)
    begin = 0
    for end in _group_ends(block.read("lengths")):
        writer.write_table(table.slice(begin, end - begin), row_group_size=end - begin)
        begin = end


def _group_ends(lengths: NDArray[np.int64]) -> list[int]:
    """Return the rows at which row groups of some thousand tokens end, after whole sentences."""
    ends = np.cumsum(lengths)
    groups = ends // _GROUP_TOKENS
    is_end = np.append(groups[1:] != groups[:-1], True)[: len(ends)]
    return [end for end in dict.fromkeys(ends[is_end].tolist()) if end]


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


def _shard_schema(layout: Layout) -> Any:
    import pyarrow as pa

    return pa.schema(
        [
            pa.field("document", pa.string(), nullable=False),
            pa.field("line", pa.int64(), nullable=False),
            pa.field("sentence", pa.int32(), nullable=False),
            pa.field("token_index", pa.int32(), nullable=False),
            pa.field("token", pa.string(), nullable=False),
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


def _columns_of(block: Block, layout: Layout) -> dict[str, Any]:
    """Return the columns of a block: those of both schemas."""
    import pyarrow as pa

    lengths = block.read("lengths")
    begins = np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = np.repeat(block.read("places"), lengths, axis=0)
    columns: dict[str, Any] = {
        "file": places[:, 0].astype(np.int32),
        "line": places[:, 1],
        "sentence": places[:, 2].astype(np.int32),
        "token_index": (np.arange(block.tokens) - begins).astype(np.int32),
        "token": _strings(block.words()).take(pa.array(block.read("ids"))),
    }
    if block.has_spans:
        spans = block.read("spans")
        columns |= {"start": spans[:, 0], "end": spans[:, 1]}
    else:
        columns |= {name: pa.nulls(block.tokens, pa.int64()) for name in ("start", "end")}
    for name, vectors in zip(vector_names(layout), block.read("vectors"), strict=True):
        flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
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


def _guess(schema: Any) -> Layout:
    """Return the layout of a data frame of `elmokit.integrations.arrow`, by its columns."""
    import pyarrow as pa

    count = sum(name.startswith("layer_") for name in schema.names)
    layer, n_layers, name = ("all", count, "layer_0") if count else ("top", 1, "vector")
    kind = schema.field(name).type if name in schema.names else None
    if kind is None or not pa.types.is_fixed_size_list(kind):
        raise DataError(
            "it was written neither by elmokit nor from a table of to_arrow, to_pandas or "
            f"to_polars: expected a column {name} with lists of fixed size"
        )
    dtype = "float16" if pa.types.is_float16(kind.value_type) else "float32"
    # A column `vector` does not tell which layer it is; "top" as for .h5 files of other programs.
    return Layout(layer, dtype, n_layers, kind.list_size)


class ParquetVectors(StoredVectors):
    """The reader; it holds one row group at a time."""

    def __init__(self, path: Path) -> None:
        check_available()
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            self._file = pq.ParquetFile(path, memory_map=True, page_checksum_verification=True)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"it is not a whole Parquet file ({error})") from error
        self._held: tuple[int, NDArray[np.int64], Any] | None = None
        description = (self._file.metadata.metadata or {}).get(DESCRIPTION.encode())
        schema = self._file.schema_arrow
        layout, about = (
            (_guess(schema), {}) if description is None else read_description(description)
        )
        if missing := {"sentence", "token", *vector_names(layout)} - set(schema.names):
            raise DataError(f"it has no column {min(missing)}")
        # A small file must not fill the memory, nor take hours to iterate over.
        rows, size = self._file.metadata.num_rows, path.stat().st_size
        claimed = rows * math.prod(layout.shape) * np.dtype(layout.dtype).itemsize
        if claimed > 100 * size + 2**26:
            raise DataError(f"it claims {claimed:,} bytes of vectors and has {size:,}")
        if description is None:
            length = self._read_all(layout)
        else:
            length = int(about.pop("sentences", 0))
            groups = [self._file.metadata.row_group(g) for g in range(self._file.num_row_groups)]
            # The last sentence of each row group, by which the group of a sentence is found.
            self._lasts = [group.column(0).statistics.max for group in groups]
        if length > 100 * rows + 10**5:
            raise DataError(f"it claims {length:,} sentences with {rows:,} tokens")
        super().__init__(path, layout, about, length)

    def _read_all(self, layout: Layout) -> int:
        """Read a data frame, whose row groups may cut sentences; return the number of sentences."""
        table = self._file.read(columns=["sentence", "token", *vector_names(layout)])
        numbers = table.column("sentence").to_numpy()
        if numbers.dtype.kind != "i" or (np.diff(numbers) < 0).any() or (numbers < 0).any():
            raise DataError("expected ascending integers in the column sentence")
        self._held = (0, numbers, table.combine_chunks())
        self._lasts = numbers[-1:].tolist()
        return int(numbers[-1]) + 1 if len(numbers) else 0

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
