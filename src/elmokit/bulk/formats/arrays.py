r"""The arrays of a corpus in `.npz` and `.safetensors` files.

S is the number of sentences, N the number of all tokens.

offsets         (S + 1,)  sentence i is vectors[offsets[i] : offsets[i + 1]]
token_offsets   (N + 1,)  token k is the bytes tokens[token_offsets[k] : token_offsets[k + 1] - 1]
places          (S, 2)    position of each sentence: index of the file, number of the line
spans           (N, 2)    start and end of each token in that line (not for tokenized input)
vectors         (N, L + 1, 2D) for all layers, else (N, 2D)
tokens          (bytes,)  the tokens in UTF-8, "\n" after each:
                          tokens.tobytes().decode().split("\n")[:-1] is the list of all
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from elmokit.bulk.formats.block import Block, decode_strings, encode_strings
from elmokit.bulk.formats.columns import Array, Column
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.reading import StoredSentence, StoredVectors
from elmokit.errors import DataError

_INDEX = np.dtype(np.int64)


def corpus_columns(blocks: Sequence[Block], layout: Layout) -> list[Column]:
    """Return the arrays of a corpus, wide types first so that all are aligned."""
    sentences = sum(block.sentences for block in blocks)
    tokens = sum(block.tokens for block in blocks)
    token_bytes = sum(block.token_bytes for block in blocks)

    def pieces(read: Callable[[Block], Array]) -> Callable[[], Iterator[Array]]:
        return lambda: (read(block) for block in blocks)

    def offsets(read: Callable[[Block], Array]) -> Callable[[], Iterator[Array]]:
        return lambda: _offsets(read(block) for block in blocks)

    columns = [
        Column("offsets", _INDEX, (sentences + 1,), offsets(lambda b: b.read("lengths"))),
        Column(
            "token_offsets",
            _INDEX,
            (tokens + 1,),
            offsets(lambda b: b.read("word_lengths")[b.read("ids")] + 1),
        ),
        Column("places", _INDEX, (sentences, 2), pieces(lambda b: b.read("places")[:, :2])),
    ]
    if all(block.has_spans for block in blocks):
        columns.append(Column("spans", _INDEX, (tokens, 2), pieces(lambda b: b.read("spans"))))
    shape = (tokens, *layout.shape)
    return [
        *columns,
        Column("vectors", np.dtype(layout.dtype), shape, pieces(_by_token)),
        Column("tokens", np.dtype(np.uint8), (token_bytes,), pieces(_token_bytes)),
    ]


def _by_token(block: Block) -> Array:
    return block.read("vectors").swapaxes(0, 1)


def _token_bytes(block: Block) -> Array:
    words, _ = encode_strings(word + "\n" for word in block.words())
    ends = np.cumsum(block.read("word_lengths") + 1).tolist()
    raw = words.tobytes()
    spelled = [raw[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]
    tokens = b"".join(map(spelled.__getitem__, block.read("ids").tolist()))
    return np.frombuffer(tokens, dtype=np.uint8)


def _offsets(lengths: Iterator[Array]) -> Iterator[Array]:
    end = 0
    yield np.zeros(1, dtype=np.int64)
    for piece in lengths:
        if len(piece):
            offsets = end + np.cumsum(piece, dtype=np.int64)
            end = int(offsets[-1])
            yield offsets


class ArrayVectors(StoredVectors):
    """The reader of both formats, which differ only in how arrays are opened."""

    def __init__(self, arrays: dict[str, Any], lengths: dict[str, int], **known: Any) -> None:
        missing = {"offsets", "token_offsets", "vectors", "tokens"} - arrays.keys()
        if missing:
            raise DataError(f"it has no array '{min(missing)}'")
        super().__init__(length=lengths["offsets"] - 1, **known)
        self._arrays = arrays
        self._lengths = lengths
        self._check()

    def _check(self) -> None:
        """Check that the lengths of the arrays are consistent."""
        ends = {"offsets": "vectors", "token_offsets": "tokens"}
        for offsets, values in ends.items():
            last = self._lengths[offsets] - 1
            end = int(self._take(offsets, last, last + 1)[0]) if last >= 0 else -1
            if end != self._lengths[values]:
                raise DataError(
                    f"'{values}' has {self._lengths[values]} rows, but '{offsets}' ends at {end}"
                )

    def _take(self, name: str, begin: int, end: int) -> Array:
        # Neither numpy's memory maps nor safetensors' slices support empty ranges.
        if begin >= end:
            return np.zeros((0, *self.layout.shape), self.layout.dtype)
        return np.asarray(self._arrays[name][begin:end])

    def _read(self, index: int) -> StoredSentence:
        begin, end = self._take("offsets", index, index + 2).tolist()
        vectors = self._take("vectors", begin, end)
        if begin == end:
            return self._sentence([], vectors)
        bounds = self._take("token_offsets", begin, end + 1)
        text = self._take("tokens", int(bounds[0]), int(bounds[-1]))
        return self._sentence(decode_strings(text, bounds[1:] - bounds[0], drop=1), vectors)
