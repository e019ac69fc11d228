"""Vector files: the vectors of a corpus on disk. The suffix selects the format.

.h5 .hdf5      AllenNLP's layout: datasets "0", "1", ... and `sentence_to_index`  (hdf5.py)
.npz           a few long arrays with the offsets of the sentences                (npz.py)
.safetensors   the same arrays                                                    (tensors.py)
.parquet       one row per token                                                  (parquet.py)
a directory    shards of .parquet, written by many processes or machines          (sharded.py)

All files are written from blocks (block.py), which fit into memory, so that a corpus may have any
size. `open_vectors` reads them one sentence at a time.
"""

from __future__ import annotations

from elmokit.bulk.formats.formats import SUFFIXES, open_vectors, write_vectors
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.reading import StoredSentence, StoredVectors

__all__ = [
    "SUFFIXES",
    "Layout",
    "StoredSentence",
    "StoredVectors",
    "open_vectors",
    "write_vectors",
]
