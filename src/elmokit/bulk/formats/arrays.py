r"""`.npz` and `.safetensors` files: a few long arrays with the vectors of all sentences.

S is the number of sentences, N the number of tokens.

offsets         (S + 1,)  sentence i is vectors[offsets[i] : offsets[i + 1]]
token_offsets   (N + 1,)  token k is the bytes tokens[token_offsets[k] : token_offsets[k + 1] - 1]
places          (S, 2)    position of each sentence: file index and line number
spans           (N, 2)    start and end of each token in the line (not for tokenized input)
vectors         (N, L + 1, 2D) for all layers, else (N, 2D); (N, (L + 1) * 2D) for "concat"
tokens          (bytes,)  the tokens in UTF-8, "\n" after each:
                          tokens.tobytes().decode().split("\n")[:-1] is the list of tokens

An `.npz` file is a zip archive that `numpy.load` reads without pickle. It is not compressed,
because vectors do not compress well and uncompressed arrays can be memory-mapped. The array
`elmokit` contains the description of the file as the bytes of a JSON string. A `.safetensors` file
contains the description in its metadata.
"""

from __future__ import annotations

import struct
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy

from elmokit.bulk.formats.block import (
    Array,
    Block,
    Column,
    decode_strings,
    encode_strings,
    write_safetensors,
)
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
from elmokit.storage.tensors import open_tensors

_INDEX = np.dtype(np.int64)
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_MAX_DESCRIPTION_BYTES = 2**24


# ---------------------------------------------------------------------------------------- writing


def save_npz(path: Path, blocks: Iterable[Block], layout: Layout, metadata: GetMetadata) -> None:
    """Write the vectors of a corpus to an `.npz` file."""
    columns = _corpus_columns(list(blocks), layout)
    description = np.frombuffer(describe(layout, metadata()).encode(), dtype=np.uint8)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for column in [Column.of(DESCRIPTION, description), *columns]:
            # A ZipInfo has a fixed date by default, so the same input gives the same bytes.
            member = zipfile.ZipInfo(f"{column.name}.npy")
            with archive.open(member, "w", force_zip64=True) as file:
                header = {
                    "descr": npy.dtype_to_descr(column.dtype.newbyteorder("<")),
                    "fortran_order": False,
                    "shape": column.shape,
                }
                npy.write_array_header_1_0(file, header)
                column.write(file)


def save_safetensors(
    path: Path, blocks: Iterable[Block], layout: Layout, metadata: GetMetadata
) -> None:
    """Write the vectors of a corpus to a `.safetensors` file."""
    columns = _corpus_columns(list(blocks), layout)
    with path.open("wb") as file:
        write_safetensors(file, columns, {DESCRIPTION: describe(layout, metadata())})


def _corpus_columns(blocks: Sequence[Block], layout: Layout) -> list[Column]:
    """Return the arrays of a corpus. Arrays with larger items come first, for alignment."""
    sentences = sum(block.sentences for block in blocks)
    tokens = sum(block.tokens for block in blocks)
    token_bytes = sum(block.record["token_bytes"] for block in blocks)

    def per_block(read_array: Callable[[Block], Array]) -> Callable[[], Iterator[Array]]:
        return lambda: map(read_array, blocks)

    def offsets(read_array: Callable[[Block], Array]) -> Callable[[], Iterator[Array]]:
        return lambda: _offsets(map(read_array, blocks))

    columns = [
        Column("offsets", _INDEX, (sentences + 1,), offsets(lambda b: b.read("lengths"))),
        Column(
            "token_offsets",
            _INDEX,
            (tokens + 1,),
            offsets(lambda b: b.read("word_lengths")[b.read("ids")] + 1),
        ),
        Column("places", _INDEX, (sentences, 2), per_block(lambda b: b.read("places")[:, :2])),
    ]
    if all(block.has_spans for block in blocks):
        columns.append(Column("spans", _INDEX, (tokens, 2), per_block(lambda b: b.read("spans"))))
    vectors_by_token = per_block(lambda b: b.read("vectors").swapaxes(0, 1))
    return [
        *columns,
        Column("vectors", np.dtype(layout.dtype), (tokens, *layout.shape), vectors_by_token),
        Column("tokens", np.dtype(np.uint8), (token_bytes,), per_block(_token_bytes)),
    ]


def _token_bytes(block: Block) -> Array:
    words, _ = encode_strings(word + "\n" for word in block.words())
    ends = np.cumsum(block.read("word_lengths") + 1).tolist()
    raw = words.tobytes()
    encoded = [raw[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    tokens = b"".join(map(encoded.__getitem__, block.read("ids").tolist()))
    return np.frombuffer(tokens, dtype=np.uint8)


def _offsets(lengths: Iterator[Array]) -> Iterator[Array]:
    end = 0
    yield np.zeros(1, dtype=np.int64)
    for block_lengths in lengths:
        if len(block_lengths):
            offsets = end + np.cumsum(block_lengths, dtype=np.int64)
            end = int(offsets[-1])
            yield offsets


# ---------------------------------------------------------------------------------------- reading


class ArrayVectors(StoredVectors):
    """The vectors in an `.npz` or `.safetensors` file.

    Args:
        path: The file.
        arrays: The arrays by name, memory-mapped.
        lengths: The length of each array.
        description: The description of the file; None if the file does not have one.
    """

    def __init__(
        self,
        path: Path,
        arrays: dict[str, Any],
        lengths: dict[str, int],
        description: str | bytes | None,
    ) -> None:
        layout, metadata = read_description(description)
        if missing := {"offsets", "token_offsets", "vectors", "tokens"} - arrays.keys():
            raise DataError(f"it has no array '{min(missing)}'")
        super().__init__(path, layout, metadata, lengths["offsets"] - 1)
        self._arrays = arrays
        for offsets, values in (("offsets", "vectors"), ("token_offsets", "tokens")):
            last = lengths[offsets] - 1
            end = int(self._slice(offsets, last, last + 1)[0]) if last >= 0 else -1
            if end != lengths[values]:
                raise DataError(
                    f"'{values}' has length {lengths[values]}, but '{offsets}' ends at {end}"
                )

    def _slice(self, name: str, begin: int, end: int) -> Array:
        # Neither NumPy's memory maps nor safetensors' slices support empty ranges.
        if begin >= end:
            return np.zeros((0, *self.layout.shape), self.layout.dtype)
        return np.asarray(self._arrays[name][begin:end])

    def _read(self, index: int) -> StoredSentence:
        begin, end = self._slice("offsets", index, index + 2).tolist()
        vectors = self._slice("vectors", begin, end)
        tokens: list[str] = []
        if begin < end:
            bounds = self._slice("token_offsets", begin, end + 1)
            text = self._slice("tokens", int(bounds[0]), int(bounds[-1]))
            tokens = decode_strings(text, bounds[1:] - bounds[0], drop=1)
        vectors = vectors.astype(self.layout.dtype, copy=False)
        # (T, L + 1, 2D) -> (L + 1, T, 2D)
        return StoredSentence(tokens, vectors.swapaxes(0, 1) if vectors.ndim == 3 else vectors)

    def close(self) -> None:
        """Release the memory maps."""
        self._arrays = {}


def open_npz(path: Path) -> ArrayVectors:
    """Open an `.npz` file."""
    try:
        with zipfile.ZipFile(path) as archive, path.open("rb") as file:
            members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
            arrays = {m.filename.removesuffix(".npy"): _map_array(path, file, m) for m in members}
    # For deeply nested headers, Python's parser raises a MemoryError.
    except (zipfile.BadZipFile, ValueError, struct.error, MemoryError) as error:
        raise DataError(f"it is not a complete .npz file ({error})") from error
    description = arrays.get(DESCRIPTION, np.zeros(0, np.uint8))[:_MAX_DESCRIPTION_BYTES].tobytes()
    lengths = {name: len(array) for name, array in arrays.items()}
    return ArrayVectors(path, arrays, lengths, description or None)


def _map_array(path: Path, file: IO[bytes], member: zipfile.ZipInfo) -> Array:
    """Memory-map an uncompressed array of a zip file."""
    if member.compress_type != zipfile.ZIP_STORED:
        raise DataError(f"its array '{member.filename}' is compressed; expected no compression")
    file.seek(member.header_offset)
    header = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    start = member.header_offset + _LOCAL_HEADER.size + header[-2] + header[-1]
    file.seek(start)
    version = npy.read_magic(file)
    read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran, dtype = read_header(file)
    if dtype.hasobject or not dtype.itemsize or fortran or not shape:
        raise DataError(f"its array '{member.filename}' is not a plain array in C order")
    offset = file.tell()
    size = dtype.itemsize * int(np.prod(shape, dtype=object))
    if offset + size > start + member.file_size:
        raise DataError(f"its array '{member.filename}' is truncated")
    if size == 0:
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", offset, shape)


def open_safetensors(path: Path) -> ArrayVectors:
    """Open a `.safetensors` file. The safetensors library validates the header."""
    file = open_tensors(path)
    arrays = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
    lengths = {name: (array.get_shape() or [0])[0] for name, array in arrays.items()}
    return ArrayVectors(path, arrays, lengths, (file.metadata() or {}).get(DESCRIPTION))
