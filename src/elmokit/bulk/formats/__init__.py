"""Vector files: the vectors of a corpus on disk, in the format that the suffix names.

.h5 .hdf5      AllenNLP's layout: datasets "0", "1", ... and `sentence_to_index`  (hdf5.py)
.npz           a few long arrays and where each sentence begins                   (npz.py)
.safetensors   the same arrays                                                    (tensors.py)
.parquet       one row per token                                                  (parquet.py)
a folder       shards of .parquet, filled by many processes or machines           (sharded.py)

All files are written from parts (part.py), runs of sentences that fit in memory, so that a corpus
of any size can be written; all are read one sentence at a time by `open_vectors`.
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
