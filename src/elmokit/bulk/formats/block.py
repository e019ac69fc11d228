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
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from elmokit.bulk.formats.columns import Array, Column, write_safetensors
from elmokit.errors import DataError
from elmokit.storage.manifest import parse_json
from elmokit.storage.tensors import open_tensors

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
        """S."""
        return int(self.record["sentences"])

    @property
    def tokens(self) -> int:
        """N."""
        return int(self.record["tokens"])

    @property
    def token_bytes(self) -> int:
        """Bytes of all tokens, plus one byte per token."""
        return int(self.record["token_bytes"])

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
    arrays: Mapping[str, Array],
    words: Sequence[str],
    texts: Iterable[str] | None,
    record: Mapping[str, Any],
) -> Block:
    """Create a block in memory.

    Args:
        arrays: `vectors`, `lengths`, `ids`, `places`, and `spans` and states if they are known.
        words: The distinct words.
        texts: The original sentences, for formats that store them.
        record: The record of the input.
    """
    all_arrays = dict(arrays)
    all_arrays["words"], all_arrays["word_lengths"] = encode_strings(words)
    if texts is not None:
        all_arrays["texts"], all_arrays["text_lengths"] = encode_strings(texts)
    sizes = {
        "sentences": len(arrays["lengths"]),
        "tokens": len(arrays["ids"]),
        "token_bytes": int((all_arrays["word_lengths"][arrays["ids"]] + 1).sum()),
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
