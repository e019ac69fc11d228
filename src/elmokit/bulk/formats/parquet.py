"""`.parquet` files: one row per token, for pandas, DuckDB, Spark and others.

sentence       number of the sentence, from 0 (sentences without tokens have no rows)
token_index    number of the token in its sentence, from 0
token          the token
file, line     position of the sentence: index of the input file and line number
start, end     position of the token in the line; null for tokenized input
vector         the vector; for all layers, there are columns `layer_0`, `layer_1`, ... instead

The shards of a directory have the column `document` (the name of the input) instead of `file`, and
`sentence` is the number of the sentence in its line. Sentences never span row groups. Requires the
extra `arrow`.
"""

from __future__ import annotations

import bisect
import json
import math
from collections.abc import Iterable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.bulk.formats.block import Block
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.reading import (
    DESCRIPTION,
    GetMetadata,
    StoredSentence,
    StoredVectors,
    describe,
    read_description,
)
from elmokit.errors import DataError
from elmokit.progress import plural

# Approximate number of tokens per row group. Readers keep one row group in memory.
_GROUP_TOKENS = 16384

#: Options of `ParquetFile`. With dictionary encoding, a repeated token is in memory only once.
READ_OPTIONS = {"read_dictionary": ["token"], "page_checksum_verification": True}

# The columns of files and of shards, with their types.
_TOKEN = {"token_index": "int32", "token": "string"}
_SPAN = {"start": "int64", "end": "int64"}
_FILE_COLUMNS = {"sentence": "int64", **_TOKEN, "file": "int32", "line": "int64", **_SPAN}
_SHARD_COLUMNS = {"document": "string", "line": "int64", "sentence": "int32", **_TOKEN, **_SPAN}


def write(path: Path, blocks: Iterable[Block], layout: Layout, metadata: GetMetadata) -> None:
    """Write the vectors of a corpus."""
    first = 0
    with path.open("wb") as file, _open_writer(file, _FILE_COLUMNS, layout) as writer:
        for block in blocks:
            numbers = np.arange(first, first + block.sentences)
            sentence = np.repeat(numbers, block.read("lengths"))
            _write_rows(writer, block, layout, {"sentence": sentence})
            first += block.sentences
        description = describe(layout, {**metadata(), "sentences": first})
        writer.add_key_value_metadata({DESCRIPTION: description})


def write_shard(
    file: IO[bytes], block: Block, layout: Layout, documents: Sequence[str], footer: dict[str, Any]
) -> None:
    """Write a shard of a directory, with one row per token.

    Args:
        file: The file.
        block: The vectors.
        layout: The layout of the vectors.
        documents: The paths or URLs of all documents.
        footer: JSON values to store in the footer of the file.
    """
    import pyarrow as pa

    names = pa.array(documents, pa.string())
    with _open_writer(file, _SHARD_COLUMNS, layout) as writer:
        document_indices = np.repeat(block.read("places")[:, 0], block.read("lengths"))
        _write_rows(writer, block, layout, {"document": names.take(pa.array(document_indices))})
        writer.add_key_value_metadata({name: json.dumps(value) for name, value in footer.items()})


def _open_writer(file: IO[bytes], columns: dict[str, str], layout: Layout) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [
        pa.field(name, pa.type_for_alias(data_type), nullable=name in _SPAN)
        for name, data_type in columns.items()
    ]
    element = pa.float16() if layout.dtype == "float16" else pa.float32()
    # Columns without nulls are written faster.
    vector = pa.list_(pa.field("element", element, nullable=False), layout.shape[-1])
    names = vector_names(layout)
    return pq.ParquetWriter(
        file,
        pa.schema([*fields, *(pa.field(name, vector, nullable=False) for name in names)]),
        use_dictionary=list(columns),
        write_statistics=list(columns),
        # Vectors do not compress well.
        compression={**dict.fromkeys(columns, "zstd"), **dict.fromkeys(names, "none")},
        write_page_checksum=True,
    )


def _write_rows(writer: Any, block: Block, layout: Layout, extra: dict[str, Any]) -> None:
    """Write the rows of a block, in row groups of complete sentences.

    Args:
        writer: The file.
        block: The block.
        layout: The layout of the vectors.
        extra: Additional columns, which depend on whether the output is a single file or a shard.
    """
    import pyarrow as pa

    if not block.tokens:
        return
    try:
        words = pa.array(block.words(), pa.string())
    except UnicodeEncodeError as error:
        raise DataError(
            f"Invalid token {error.object!r}: Parquet files cannot store lone surrogates. Clean "
            "the text, or choose .h5, .npz or .safetensors."
        ) from error
    lengths = block.read("lengths")
    begins = np.repeat(np.cumsum(lengths) - lengths, lengths)
    places = np.repeat(block.read("places"), lengths, axis=0)
    columns: dict[str, Any] = {
        "file": places[:, 0].astype(np.int32),
        "line": places[:, 1],
        "sentence": places[:, 2].astype(np.int32),
        "token_index": (np.arange(block.tokens) - begins).astype(np.int32),
        "token": words.take(pa.array(block.read("ids"))),
        "start": pa.nulls(block.tokens, pa.int64()),
        "end": pa.nulls(block.tokens, pa.int64()),
        **extra,
    }
    if block.has_spans:
        columns["start"], columns["end"] = block.read("spans").T
    schema = writer.schema
    for name, vectors in zip(vector_names(layout), block.read("vectors"), strict=True):
        flat = pa.array(np.ascontiguousarray(vectors).reshape(-1))
        columns[name] = pa.FixedSizeListArray.from_arrays(flat, type=schema.field(name).type)
    table = pa.table({name: columns[name] for name in schema.names}, schema=schema)
    begin = 0
    for end in _group_ends(lengths):
        writer.write_table(table.slice(begin, end - begin), row_group_size=end - begin)
        begin = end


def _group_ends(lengths: NDArray[np.int64]) -> list[int]:
    """Return the row at which each row group ends."""
    ends = np.cumsum(lengths)
    groups = ends // _GROUP_TOKENS
    is_end = np.append(groups[1:] != groups[:-1], True)[: len(ends)]
    return [end for end in dict.fromkeys(ends[is_end].tolist()) if end]


def vector_names(layout: Layout) -> list[str]:
    """Return the names of the columns that contain vectors."""
    if layout.layer != "all":
        return ["vector"]
    return [f"layer_{j}" for j in range(layout.n_layers)]


class SentenceReader:
    """Reads the sentences of a Parquet file.

    The row groups of the last sentence that was read stay in memory.

    Args:
        file: A `pyarrow.parquet.ParquetFile`.
        layout: The layout of the vectors.
        bounds: The first row of each sentence, and the end of the last sentence.
    """

    def __init__(self, file: Any, layout: Layout, bounds: NDArray[np.int64]) -> None:
        self.file = file
        self._layout = layout
        self._bounds = bounds
        groups = (file.metadata.row_group(g) for g in range(file.num_row_groups))
        self._ends = list(accumulate(group.num_rows for group in groups))
        self._loaded: tuple[tuple[int, int], Any, list[str]] | None = None

    def read(self, index: int) -> StoredSentence:
        """Return a sentence."""
        begin, end = self._bounds[index : index + 2].tolist()
        layout, names = self._layout, vector_names(self._layout)
        vectors = np.empty((len(names), end - begin, layout.shape[-1]), dtype=layout.dtype)
        tokens: list[str] = []
        if begin < end:
            groups = bisect.bisect_right(self._ends, begin), bisect.bisect_left(self._ends, end)
            if self._loaded is None or self._loaded[0] != groups:
                self._loaded = None  # never keep two tables in memory
                group_numbers = list(range(groups[0], groups[1] + 1))
                table = self.file.read_row_groups(group_numbers, columns=["token", *names])
                table = table.unify_dictionaries().combine_chunks()
                words = table.column("token").chunk(0).dictionary.to_pylist()
                self._loaded = groups, table, words
            start = begin - (self._ends[groups[0] - 1] if groups[0] else 0)
            rows = self._loaded[1].slice(start, end - begin)
            words = self._loaded[2]
            tokens = [words[i] for i in rows.column("token").chunk(0).indices.to_pylist()]
            for j, name in enumerate(names):
                values = rows.column(name).chunk(0).flatten()
                vectors[j] = values.to_numpy(zero_copy_only=False).reshape(end - begin, -1)
        return StoredSentence(tokens, vectors if layout.layer == "all" else vectors[0])

    def close(self) -> None:
        """Close the file."""
        self._loaded = None
        self.file.close()


class ParquetVectors(StoredVectors):
    """The vectors in a `.parquet` file."""

    def __init__(self, path: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(path, memory_map=True, **READ_OPTIONS)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"it is not a complete Parquet file ({error})") from error
        description = (file.metadata.metadata or {}).get(DESCRIPTION.encode())
        schema = file.schema_arrow
        layout, metadata = read_description(description, lambda: _guess_layout(schema))
        if missing := {"sentence", "token", *vector_names(layout)} - set(schema.names):
            raise DataError(f"it has no column '{min(missing)}'")
        limit = check_size(file, layout, path.stat().st_size)
        # In files written from a data frame, sentences may span row groups.
        sentences = file.read(columns=["sentence"]).column(0).to_numpy()
        if sentences.dtype.kind != "i" or (np.diff(sentences, prepend=0) < 0).any():
            raise DataError("the column 'sentence' must contain ascending integers")
        rows = len(sentences)
        length = int(metadata.pop("sentences", int(sentences[-1]) + 1 if rows else 0))
        if not 0 <= 16 * length <= limit:
            sentences, tokens = plural(length, "sentence"), plural(rows, "token")
            raise DataError(f"it declares {sentences}, but has {tokens}")
        super().__init__(path, layout, metadata, length)
        bounds = np.searchsorted(sentences, np.arange(length + 1))
        self._reader = SentenceReader(file, layout, bounds)

    def _read(self, index: int) -> StoredSentence:
        return self._reader.read(index)

    def close(self) -> None:
        """Close the file."""
        self._reader.close()


def check_size(file: Any, layout: Layout, size: int) -> int:
    """Reject a small file that would exhaust memory or take hours to read.

    Args:
        file: A `pyarrow.parquet.ParquetFile`.
        layout: The layout of the vectors.
        size: The size of the file in bytes.

    Returns:
        The maximum size of the file's content in memory, in bytes.

    Raises:
        ValueError: The file declares much more content than its size allows.
    """
    metadata = file.metadata
    row = 8 + math.prod(layout.shape) * np.dtype(layout.dtype).itemsize
    stored = sum(metadata.row_group(group).total_byte_size for group in range(file.num_row_groups))
    declared, limit = max(metadata.num_rows * row, stored), 100 * size + 2**26
    if declared > limit:
        raise ValueError(f"it declares {declared:,} bytes of content, but has {size:,} bytes")
    return limit


def _guess_layout(schema: Any) -> Layout:
    """Infer the layout of a data frame of `elmokit.integrations.arrow` from its columns."""
    import pyarrow as pa

    count = sum(name.startswith("layer_") for name in schema.names)
    layer, n_layers, name = ("all", count, "layer_0") if count else ("top", 1, "vector")
    data_type = schema.field(name).type if name in schema.names else None
    if data_type is None or not pa.types.is_fixed_size_list(data_type):
        raise DataError(
            f"it has no column '{name}' with fixed-size lists; expected a file written by "
            "elmokit, or a table from to_arrow, to_pandas or to_polars"
        )
    is_half = pa.types.is_float16(data_type.value_type)
    # The column `vector` does not specify the layer. Assume the top layer, as in hdf5.py.
    return Layout(layer, "float16" if is_half else "float32", n_layers, data_type.list_size)
