"""`.h5` files in the layout of AllenNLP's `elmo` command, which many programs read.

"0", "1", ...          the vectors of each sentence: (L + 1, T, 2D) for all layers, else (T, 2D)
"sentence_to_index"    a JSON object that maps each original sentence to its number (as a string);
                       for identical sentences, to the number of the last one

elmokit adds attributes, which other readers ignore: each dataset has the attribute `tokens` (a JSON
list), and the file has the attribute `elmokit` (its description). Attributes of more than 65,000
bytes continue in `tokens1`, `tokens2`, ...
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

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
from elmokit.errors import DataError, warn
from elmokit.progress import plural
from elmokit.storage.hdf5 import find_dataset, hdf5_errors, open_hdf5, read_attribute, read_string
from elmokit.storage.hdf5_writer import Hdf5Writer

INDEX = "sentence_to_index"
TOKENS = "tokens"

# The index is a single string, which must fit into the memory of writers and readers.
_MAX_INDEX_SENTENCES = 1_000_000
_MAX_INDEX_BYTES = 2**28
_BUFFER_BYTES = 2**20


def write(path: Path, blocks: Iterable[Block], layout: Layout, metadata: GetMetadata) -> None:
    """Write the vectors of a corpus."""
    index: dict[str, str] | None = {}
    sentences = n_bytes = 0
    with path.open("wb", buffering=_BUFFER_BYTES) as file:
        writer = Hdf5Writer(file)
        for block in blocks:
            _write_block(writer, block, layout)
            first, sentences = sentences, sentences + block.sentences
            n_bytes += len(block.read("texts"))
            if sentences > _MAX_INDEX_SENTENCES or n_bytes > _MAX_INDEX_BYTES:
                index = None
            if index is not None:
                index |= {text: str(i) for i, text in enumerate(block.texts(), start=first)}
        if index is not None:
            writer.add_string(INDEX, json.dumps(index))
        writer.finish({DESCRIPTION: describe(layout, metadata()).encode()})
    if index is None:
        warn(
            f"The HDF5 file has no '{INDEX}', because the text has more than "
            f"{plural(_MAX_INDEX_SENTENCES, 'sentence')} or {_MAX_INDEX_BYTES >> 20} MB. The "
            "datasets are numbered in the order of the input."
        )


def _write_block(writer: Hdf5Writer, block: Block, layout: Layout) -> None:
    vectors = block.read("vectors")
    if layout.layer != "all":
        vectors = vectors[0]
    encoded = [json.dumps(word) for word in block.words()]
    tokens = [encoded[i] for i in block.read("ids").tolist()]
    ends = np.cumsum(block.read("lengths")).tolist()
    for begin, end in zip([0, *ends], ends, strict=False):
        text = f"[{', '.join(tokens[begin:end])}]"
        writer.add_numbers(vectors[..., begin:end, :], {TOKENS: text.encode()})


class Hdf5Vectors(StoredVectors):
    """The vectors in an `.h5` file, which AllenNLP or bilm-tf may have written."""

    def __init__(self, path: Path) -> None:
        self._file = open_hdf5(path)
        self._index: dict[int, str] | None = None
        with hdf5_errors(path):
            length = len(self._file) - (INDEX in self._file)
            layout, metadata = read_description(
                read_attribute(self._file, DESCRIPTION),
                lambda: self._guess_layout(length),
            )
        super().__init__(path, layout, metadata, length)

    def _guess_layout(self, length: int) -> Layout:
        """Infer the layout of a file without a description from its first sentence."""
        first = find_dataset(self._file, "0")
        if length and getattr(first, "ndim", 0) not in (2, 3):
            raise DataError("it has no dataset '0' with two or three dimensions")
        shape = first.shape if length else (0, 0, 0)
        # Two-dimensional datasets do not specify the layer. Most files contain the top layer.
        layer, n_layers = ("all", shape[0]) if len(shape) == 3 else ("top", 1)
        is_half = length and first.dtype == np.float16
        return Layout(layer, "float16" if is_half else "float32", n_layers, shape[-1])

    def _read(self, index: int) -> StoredSentence:
        dataset = find_dataset(self._file, str(index))
        if dataset is None:
            raise DataError(f"{self.path} has no dataset '{index}'.")
        vectors = dataset[...].astype(self.layout.dtype, copy=False)
        tokens = read_attribute(dataset, TOKENS)
        if tokens is not None:
            return StoredSentence(json.loads(tokens), vectors)
        return StoredSentence(self._tokens_from_index(index, vectors.shape[-2]), vectors)

    def _tokens_from_index(self, number: int, n_tokens: int) -> list[str] | None:
        """Look up the tokens in `sentence_to_index`, which contains each sentence only once."""
        if self._index is None:
            numbers = json.loads(read_string(self._file, INDEX) or "{}")
            self._index = {int(number): sentence for sentence, number in numbers.items()}
        tokens = self._index.get(number, "").split()
        return tokens if len(tokens) == n_tokens else None

    def close(self) -> None:
        """Close the file."""
        self._file.close()
