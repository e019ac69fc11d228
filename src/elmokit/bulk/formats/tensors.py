"""`.safetensors` files: a header with the offset of each array, then the arrays of arrays.py."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from elmokit.bulk.formats.arrays import ArrayVectors, corpus_columns
from elmokit.bulk.formats.block import Block
from elmokit.bulk.formats.columns import write_safetensors
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.reading import (
    DESCRIPTION,
    About,
    describe,
    read_description,
)
from elmokit.storage.tensors import open_tensors


def write(path: Path, blocks: Iterable[Block], layout: Layout, about: About) -> None:
    """Write the vectors of a corpus."""
    corpus = list(blocks)  # the file starts with the lengths of the arrays
    with path.open("wb") as file:
        write_safetensors(
            file, corpus_columns(corpus, layout), {DESCRIPTION: describe(layout, about())}
        )


class Vectors(ArrayVectors):
    """The reader; the library checks the header and maps the file."""

    def __init__(self, path: Path) -> None:
        file = open_tensors(path)
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        layout, about = read_description((file.metadata() or {}).get(DESCRIPTION))
        lengths = {name: (array.get_shape() or [0])[0] for name, array in slices.items()}
        super().__init__(slices, lengths, path=path, layout=layout, about=about)

    def close(self) -> None:
        """Release the memory map."""
        self._arrays = {}
