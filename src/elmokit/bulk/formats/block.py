r"""A block: the vectors of some sentences, as a few flat arrays that fit into memory.

S is the number of sentences, N the number of tokens, V the number of distinct words.

vectors         (K, N, 2D)  K = L + 1 for all layers, else 1; tokens in the order of the text
lengths         (S,)        tokens of each sentence
ids             (N,)        the word of each token
words           (bytes,)    the concatenated words in UTF-8
word_lengths    (V,)        bytes of each
places          (S, 3)      position of each sentence: index of the document, number of the line,
                            number of the sentence in its line
spans           (N, 2)      start and end of each token in that line; not for tokenized input
texts           (bytes,)    the original sentences, for formats that store them
text_lengths    (S,)        bytes of each
state.*                     with state="carry", the state after the last sentence

On disk a block is a safetensors file of these arrays and a record of its input. It is written
atomically, and a checksum detects later changes of the vectors.
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
_ERRORS = "surrogatepass"
_HINT = "Delete this file and resume, or start with --overwrite."


@dataclass(frozen=True)
class Block:
    """A block in memory or on disk.

    Attributes:
        record: Its sizes and the record of its input.
        read: Returns one of the arrays listed at the top of this file.
        arrays: All arrays of a block in memory.
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
        """Whether the positions of tokens in their lines are known."""
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
        tokens: The sentences.
        arrays: `vectors`, `places`, and `spans` and states if they are known.
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
        "token_bytes": int((word_lengths[tokens.ids] + 1).sum()),  # and one per token
        "has_spans": "spans" in arrays,
    }
    return Block({**record, **sizes}, all_arrays.__getitem__, all_arrays)


def save_block(file: IO[bytes], block: Block) -> None:
    """Write a block that is in memory."""
    # Wide types first, so that each array is aligned in the file.
    order = sorted(block.arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
    record = {**block.record, "crc32": _checksum(block.arrays["vectors"])}
    columns = [Column.of(name, array) for name, array in order]
    write_safetensors(file, columns, {"record": json.dumps(record)})


def open_block(path: Path) -> Block:
    """Open a block on disk; raise an error if the file is damaged."""
    with open_tensors(path, hint=_HINT) as file:
        text = (file.metadata() or {}).get("record", "")
    record = parse_json(text, path, error=DataError, hint=_HINT)

    def read(name: str) -> Array:
        with open_tensors(path, hint=_HINT) as file:
            array: Array = file.get_tensor(name)
        if name == "vectors" and _checksum(array) != record["crc32"]:
            raise DataError(f"{path} is damaged: the checksum of its vectors is wrong. {_HINT}")
        return array

    return Block(record, read)


def _checksum(array: Array) -> int:
    return zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def encode_strings(strings: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return concatenated strings as an array of bytes, and the number of bytes of each."""
    pieces = [string.encode("utf-8", _ERRORS) for string in strings]
    text = np.frombuffer(b"".join(pieces), dtype=np.uint8)
    return text, np.array([len(piece) for piece in pieces], dtype=np.int64)


def decode_strings(text: Array, ends: Array, *, drop: int = 0) -> list[str]:
    """Return the strings of an array of bytes.

    Args:
        text: The bytes.
        ends: The end of each string.
        drop: Bytes to omit at the end of each.
    """
    raw = text.tobytes()
    strings = []
    begin = 0
    for end in ends.tolist():
        strings.append(raw[begin : end - drop].decode("utf-8", _ERRORS))
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
    """An array of a file.

    Attributes:
        name: Its name in the file.
        dtype: Its data type.
        shape: Its shape.
        pieces: Returns the pieces of the array in order, divided along the first axis.
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
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def write(self, file: IO[bytes]) -> None:
        """Write the values, little-endian, in C order."""
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
    """Write a safetensors file; the library needs all arrays in memory.

    Args:
        file: The file.
        columns: The arrays, wide types first so that each is aligned.
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
