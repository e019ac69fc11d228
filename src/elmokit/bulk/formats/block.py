r"""A block: the vectors of some sentences, as a few flat arrays that fit into memory.

S is the number of sentences, N the number of tokens, V the number of distinct words.

vectors         (K, N, W)   K = L + 1 for all layers, else 1; W = 2 * D, or (L + 1) * 2 * D for
                            "concat"; tokens are in text order
lengths         (S,)        number of tokens of each sentence
ids             (N,)        index of the word of each token
words           (bytes,)    the concatenated words in UTF-8
word_lengths    (V,)        number of bytes of each word
places          (S, 3)      position of each sentence: document index, line number, and number of
                            the sentence in the line
spans           (N, 2)      start and end of each token in the line; not for tokenized input
texts           (bytes,)    the concatenated original sentences, for formats that store them
text_lengths    (S,)        number of bytes of each original sentence
state.*                     with state="carry", the state after the last sentence

On disk, a block is a safetensors file with these arrays and a record of the input. The file is
written atomically, and checksums detect later changes.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.blocks import TokenIds
from elmokit.errors import DataError
from elmokit.storage.manifest import parse_json
from elmokit.storage.tensors import open_tensors

Array = NDArray[Any]

# Python strings may contain lone surrogates, which UTF-8 cannot represent.
_ENCODING_ERRORS = "surrogatepass"
_HINT = "Delete this file and resume, or start again with --overwrite."


@dataclass(frozen=True)
class Block:
    """A block in memory or on disk.

    Attributes:
        record: The sizes of the block and the record of the input.
        read: Returns one of the arrays listed at the top of this file.
        arrays: The arrays, if the block is in memory.
    """

    record: Mapping[str, Any]
    read: Callable[[str], Array]
    arrays: Mapping[str, Array] = field(default_factory=dict)

    @property
    def sentences(self) -> int:
        """Number of sentences."""
        return int(self.record["sentences"])

    @property
    def tokens(self) -> int:
        """Number of tokens."""
        return int(self.record["tokens"])

    @property
    def has_spans(self) -> bool:
        """Whether the position of each token in its line is known."""
        return bool(self.record["has_spans"])

    def words(self) -> list[str]:
        """Return the distinct words."""
        return decode_strings(self.read("words"), np.cumsum(self.read("word_lengths")))

    def texts(self) -> list[str]:
        """Return the original sentences."""
        return decode_strings(self.read("texts"), np.cumsum(self.read("text_lengths")))


def make_block(
    tokens: TokenIds,
    arrays: Mapping[str, Array],
    texts: Iterable[str] | None,
    record: Mapping[str, Any],
) -> Block:
    """Create a block in memory.

    Args:
        tokens: The tokens of all sentences.
        arrays: `vectors` and `places`, and optionally `spans` and the arrays of the state.
        texts: The original sentences, for formats that store them.
        record: The record of the input.
    """
    words, word_lengths = encode_strings(tokens.words)
    all_arrays = {
        **arrays,
        "lengths": tokens.lengths,
        "ids": tokens.ids,
        "words": words,
        "word_lengths": word_lengths,
    }
    if texts is not None:
        all_arrays["texts"], all_arrays["text_lengths"] = encode_strings(texts)
    sizes = {
        "sentences": len(tokens.lengths),
        "tokens": len(tokens.ids),
        "token_bytes": int((word_lengths[tokens.ids] + 1).sum()),  # a newline after each token
        "has_spans": "spans" in arrays,
    }
    return Block({**record, **sizes}, all_arrays.__getitem__, all_arrays)


def save_block(file: IO[bytes], block: Block) -> None:
    """Write a block in memory to a file."""
    # Arrays with larger items come first, so that each array is aligned in the file.
    order = sorted(block.arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    checksums = {name: _checksum(array) for name, array in order}
    record = json.dumps({**block.record, "crc32": checksums})
    columns = [Column.of(name, array) for name, array in order]
    write_safetensors(file, columns, {"record": record, "crc32": str(zlib.crc32(record.encode()))})


def open_block(path: Path) -> Block:
    """Open a block on disk. Arrays are read, and their checksums are verified, on access."""
    with open_tensors(path, hint=_HINT) as file:
        metadata = file.metadata() or {}
    text = metadata.get("record", "")
    if metadata.get("crc32") != str(zlib.crc32(text.encode())):
        raise DataError(f"{path} is damaged: the checksum of its record is wrong. {_HINT}")
    record = parse_json(text, path, error=DataError, hint=_HINT)

    def read(name: str) -> Array:
        with open_tensors(path, hint=_HINT) as file:
            array: Array = file.get_tensor(name)
        if _checksum(array) != record["crc32"][name]:
            raise DataError(f"{path} is damaged: the checksum of '{name}' is wrong. {_HINT}")
        return array

    return Block(record, read)


def _checksum(array: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def encode_strings(strings: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Concatenate strings. Return their bytes, and the number of bytes of each string."""
    pieces = [string.encode("utf-8", _ENCODING_ERRORS) for string in strings]
    text = np.frombuffer(b"".join(pieces), dtype=np.uint8)
    return text, np.array([len(piece) for piece in pieces], dtype=np.int64)


def decode_strings(text: Array, ends: Array, *, drop: int = 0) -> list[str]:
    """Decode concatenated strings.

    Args:
        text: The bytes of all strings.
        ends: The end of each string.
        drop: Number of bytes to omit at the end of each string.
    """
    raw = text.tobytes()
    strings = []
    begin = 0
    for end in ends.tolist():
        strings.append(raw[begin : end - drop].decode("utf-8", _ENCODING_ERRORS))
        begin = end
    return strings


# --------------------------------------------------------------------------------- arrays in files

_SAFETENSORS_NAMES = {
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "uint8": "U8",
}


@dataclass(frozen=True)
class Column:
    """An array to write to a file. The array need not fit into memory.

    Attributes:
        name: The name of the array in the file.
        dtype: The data type.
        shape: The shape.
        pieces: Returns the values in order, as arrays to concatenate along the first axis.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Callable[[], Iterable[Array]]

    @classmethod
    def of(cls, name: str, array: Array) -> Column:
        """Create a column from an array in memory."""
        return cls(name, array.dtype, array.shape, lambda: (array,))

    @property
    def n_bytes(self) -> int:
        """Size of the array in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def write(self, file: IO[bytes]) -> None:
        """Write the values in little-endian byte order and C order."""
        written = 0
        for piece in self.pieces():
            values = np.ascontiguousarray(piece, dtype=self.dtype.newbyteorder("<"))
            written += values.nbytes
            if values.nbytes:
                file.write(values.reshape(-1).view(np.uint8).data)
        if written != self.n_bytes:  # the offsets of the next arrays would be wrong
            raise AssertionError(f"'{self.name}' has {written} bytes instead of {self.n_bytes}")


def write_safetensors(
    file: IO[bytes], columns: Sequence[Column], metadata: Mapping[str, str]
) -> None:
    """Write a safetensors file.

    Unlike `safetensors.numpy.save_file`, this function does not need all arrays in memory.

    Args:
        file: The file.
        columns: The arrays. Those with larger items must come first, so that each is aligned.
        metadata: Strings for the header.
    """
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for column in columns:
        begin, end = end, end + column.n_bytes
        header[column.name] = {
            "dtype": _SAFETENSORS_NAMES[column.dtype.name],
            "shape": list(column.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that the first array is aligned
    file.write(struct.pack("<Q", len(text)) + text)
    for column in columns:
        column.write(file)
