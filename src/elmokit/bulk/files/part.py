r"""A part: a run of sentences with their vectors, as a few flat arrays that fit in memory.

Here S is the number of sentences of the part and N its tokens.

vectors         (N, L + 1, 2D) or (N, 2D)    token by token, sentences one after the other
lengths         (S,)      tokens of each sentence
tokens          (bytes,)  the tokens in UTF-8, "\n" after each
token_lengths   (N,)      bytes of each token in it, the "\n" included
places          (S, 2)    where each sentence stood: index of the file, number of the line
spans           (N, 2)    start and end of each token in that line; missing for tokenised input
text            (bytes,)  the sentences as they were written, one after the other
text_lengths    (S,)      bytes of each

On disk a part is a safetensors file of these arrays. It is written beside and renamed, and brings
its own record along, so that a part is finished if and only if it stands under its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from elmokit.bulk.files.columns import Array, Column, write_safetensors
from elmokit.bulk.files.layout import Layout
from elmokit.embed.vectors import SentenceVectors
from elmokit.errors import DataError
from elmokit.storage.manifest import parse_json
from elmokit.storage.tensors import open_tensors

# What Python can hold and UTF-8 cannot (lone surrogates) is kept all the same.
_ERRORS = "surrogatepass"


class SourceSentence(NamedTuple):
    """A sentence with its vectors and where it came from.

    Attributes:
        vectors: Tokens, offsets and layers.
        text: The sentence as it was written.
        file: Index of the file it stood in.
        line: Number of the line it stood in, counted from 1.
    """

    vectors: SentenceVectors
    text: str
    file: int = 0
    line: int = 0


class Part(Protocol):
    """What the writers need of a part, in memory or on disk."""

    @property
    def sentences(self) -> int: ...
    @property
    def tokens(self) -> int: ...
    @property
    def token_bytes(self) -> int: ...
    @property
    def has_spans(self) -> bool: ...
    def read(self, name: str) -> Array:
        """Return one of the arrays listed at the head of this file."""


@dataclass(frozen=True)
class MemoryPart:
    """A part that was just computed."""

    arrays: Mapping[str, Array]

    @property
    def sentences(self) -> int:
        """S."""
        return len(self.arrays["lengths"])

    @property
    def tokens(self) -> int:
        """N."""
        return len(self.arrays["token_lengths"])

    @property
    def token_bytes(self) -> int:
        """Bytes of the tokens."""
        return len(self.arrays["tokens"])

    @property
    def has_spans(self) -> bool:
        """Whether the tokens know their place in the line."""
        return "spans" in self.arrays

    def read(self, name: str) -> Array:
        """Return an array."""
        return self.arrays[name]

    def save(self, path: Path, record: Mapping[str, Any]) -> None:
        """Write the part; the caller renames it."""
        sizes = {
            "sentences": self.sentences,
            "tokens": self.tokens,
            "token_bytes": self.token_bytes,
            "has_spans": self.has_spans,
        }
        # Wide types first, so that each array is aligned in the file.
        arrays = sorted(self.arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))
        with path.open("wb") as file:
            write_safetensors(
                file,
                [Column.of(name, array) for name, array in arrays],
                {"record": json.dumps({**sizes, **record})},
            )


@dataclass(frozen=True)
class PartFile:
    """A finished part on disk.

    Attributes:
        path: The safetensors file.
        record: What was noted with it.
    """

    path: Path
    record: Mapping[str, Any] = field(repr=False)

    @classmethod
    def open(cls, path: Path) -> PartFile:
        """Read the record of a part; a damaged file is an error."""
        hint = "Delete this part of an interrupted run and resume, or start with --overwrite."
        with open_tensors(path, hint=hint) as file:
            record = (file.metadata() or {}).get("record", "")
        return cls(path, parse_json(record, path, error=DataError, hint=hint))

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
        """Bytes of the tokens."""
        return int(self.record["token_bytes"])

    @property
    def has_spans(self) -> bool:
        """Whether the tokens know their place in the line."""
        return bool(self.record["has_spans"])

    def read(self, name: str) -> Array:
        """Return an array."""
        with open_tensors(self.path) as file:
            array: Array = file.get_tensor(name)
        return array


def make_part(sentences: Sequence[SourceSentence], layout: Layout) -> MemoryPart:
    """Lay out the vectors of some sentences as a part."""
    lengths = [len(sentence.vectors) for sentence in sentences]
    total = sum(lengths)
    vectors = np.empty((total, *layout.shape), dtype=layout.dtype)
    end = 0
    for sentence, length in zip(sentences, lengths, strict=True):
        begin, end = end, end + length
        vectors[begin:end] = layout.vectors(sentence.vectors)
    tokens = [token for sentence in sentences for token in sentence.vectors.tokens]
    token_text, token_lengths = encode_strings(token + "\n" for token in tokens)
    text, text_lengths = encode_strings(sentence.text for sentence in sentences)
    arrays: dict[str, Array] = {
        "vectors": vectors,
        "lengths": np.array(lengths, dtype=np.int64),
        "tokens": token_text,
        "token_lengths": token_lengths,
        "text": text,
        "text_lengths": text_lengths,
        "places": np.array([[s.file, s.line] for s in sentences], np.int64).reshape(-1, 2),
    }
    if all(sentence.vectors.offsets is not None for sentence in sentences):
        spans = [span for s in sentences for span in s.vectors.offsets or ()]
        arrays["spans"] = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return MemoryPart(arrays)


def encode_strings(strings: Iterable[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return strings as one array of bytes, and the number of bytes of each."""
    pieces = [string.encode("utf-8", _ERRORS) for string in strings]
    text = np.frombuffer(b"".join(pieces), dtype=np.uint8)
    return text, np.array([len(piece) for piece in pieces], dtype=np.int64)


def decode_strings(text: Array, ends: Array, *, drop: int = 0) -> list[str]:
    """Undo `encode_strings`.

    Args:
        text: The bytes.
        ends: Where each string ends in them.
        drop: Bytes to leave out at the end of each.
    """
    raw = text.tobytes()
    strings = []
    begin = 0
    for end in ends.tolist():
        strings.append(raw[begin : end - drop].decode("utf-8", _ERRORS))
        begin = end
    return strings


def sentence_tokens(part: Part) -> Iterator[list[str]]:
    """Yield the tokens of each sentence of a part."""
    tokens = decode_strings(part.read("tokens"), np.cumsum(part.read("token_lengths")), drop=1)
    end = 0
    for length in part.read("lengths").tolist():
        begin, end = end, end + length
        yield tokens[begin:end]
