"""`.h5` files in the layout of AllenNLP's `elmo` command, which many programs read.

"0", "1", ...          the vectors of each sentence: (L + 1, T, 2D) for all layers, else (T, 2D)
"sentence_to_index"    one string, the JSON object {sentence as written: its number as a string};
                       of equal sentences it names the last

Our own additions are attributes, which readers of that layout do not see: `tokens` of each dataset
(a JSON list: with it the file tells what each vector belongs to) and `elmokit` of the file.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.bulk.files.layout import Layout
from elmokit.bulk.files.part import Part, decode_strings, sentence_tokens
from elmokit.bulk.files.reading import (
    DESCRIPTION,
    StoredSentence,
    StoredVectors,
    describe,
    read_description,
)
from elmokit.errors import DataError, ElmoWarning
from elmokit.hdf5_sink import Hdf5Sink
from elmokit.storage.hdf5 import find_dataset, hdf5_errors, open_hdf5

INDEX = "sentence_to_index"
TOKENS = "tokens"

# The index is one string, which both we and its readers must hold in memory.
_MOST_INDEXED = 1_000_000
_MOST_INDEXED_BYTES = 2**28


def write(path: Path, parts: Sequence[Part], layout: Layout, about: dict[str, Any]) -> None:
    """Write the vectors of a corpus."""
    import h5py

    number = 0
    with Hdf5Sink(path) as sink, h5py.File(sink, "w") as file:
        file.attrs[DESCRIPTION] = describe(layout, about)
        for part in parts:
            vectors = part.read("vectors")
            end = 0
            for tokens in sentence_tokens(part):
                begin, end = end, end + len(tokens)
                rows = vectors[begin:end]
                values = np.ascontiguousarray(rows.swapaxes(0, 1) if rows.ndim == 3 else rows)
                # Without times in it, the same input gives the same bytes.
                dataset = file.create_dataset(str(number), data=values, track_times=False)
                dataset.attrs[TOKENS] = json.dumps(tokens)
                sink.check()
                number += 1
        index = _sentence_index(parts)
        if index is not None:
            text = h5py.string_dtype()
            file.create_dataset(INDEX, (1,), dtype=text, track_times=False)[0] = json.dumps(index)


def _sentence_index(parts: Sequence[Part]) -> dict[str, str] | None:
    count = sum(part.sentences for part in parts)
    if count > _MOST_INDEXED:
        _warn_left_out(f"{count:,} sentences, more than {_MOST_INDEXED:,}")
        return None
    index: dict[str, str] = {}
    number = size = 0
    for part in parts:
        text = part.read("text")
        size += len(text)
        if size > _MOST_INDEXED_BYTES:
            _warn_left_out(f"more than {_MOST_INDEXED_BYTES >> 20} MB of text")
            return None
        for sentence in decode_strings(text, np.cumsum(part.read("text_lengths"))):
            index[sentence] = str(number)
            number += 1
    return index


def _warn_left_out(reason: str) -> None:
    warnings.warn(
        f"'{INDEX}' was left out of the file, which holds {reason}; "
        "datasets are numbered in the order of the input.",
        ElmoWarning,
        stacklevel=2,
    )


def read(path: Path) -> StoredVectors:
    """Open a file."""
    return Hdf5Vectors(path)


class Hdf5Vectors(StoredVectors):
    """The reader, also of files that AllenNLP or bilm-tf wrote."""

    def __init__(self, path: Path) -> None:
        self._file = open_hdf5(path)
        with hdf5_errors(path):
            layout, about, length = self._describe()
        super().__init__(path, layout, about, length)
        self._index: dict[int, str] | None = None

    def _describe(self) -> tuple[Layout, dict[str, Any], int]:
        length = len(self._file) - (INDEX in self._file)
        described = self._file.attrs.get(DESCRIPTION)
        layout, about = self._guess(length) if described is None else read_description(described)
        return layout, about, length

    def _guess(self, length: int) -> tuple[Layout, dict[str, Any]]:
        """Tell the layout of a file of another program by its first sentence."""
        first = find_dataset(self._file, "0")
        if length and getattr(first, "ndim", 0) not in (2, 3):
            raise DataError("there is no dataset '0' of two or three axes in it")
        shape = first.shape if length else (0, 0, 0)
        dtype = "float16" if length and first.dtype == np.float16 else "float32"
        # Of two axes one cannot tell what they are; "top" is what most people stored.
        layer, n_layers = ("all", shape[0]) if len(shape) == 3 else ("top", 1)
        return Layout(layer, dtype, n_layers, shape[-1]), {}

    def _read(self, index: int) -> StoredSentence:
        with hdf5_errors(self.path):
            dataset = find_dataset(self._file, str(index))
            if dataset is None:
                raise DataError(f"There is no dataset '{index}' in {self.path}.")
            vectors = dataset[...].astype(self.layout.dtype, copy=False)
            tokens = dataset.attrs.get(TOKENS)
            if tokens is not None:
                return StoredSentence(json.loads(tokens), vectors)
            return StoredSentence(self._foreign_tokens(index, vectors.shape[-2]), vectors)

    def _foreign_tokens(self, index: int, count: int) -> list[str] | None:
        """Look for the tokens in `sentence_to_index`, which has each sentence only once."""
        if self._index is None:
            dataset = find_dataset(self._file, INDEX)
            stored = {} if dataset is None else json.loads(dataset[0])
            self._index = {int(number): sentence for sentence, number in stored.items()}
        tokens = self._index.get(index, "").split()
        return tokens if len(tokens) == count else None

    def close(self) -> None:
        """Close the file."""
        self._file.close()
