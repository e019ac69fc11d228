"""Vector files: the vectors of a corpus on disk. The file extension determines the format.

.h5 .hdf5      AllenNLP's layout: datasets "0", "1", ... and `sentence_to_index`  (hdf5.py)
.npz           a few long arrays, including the offsets of the sentences          (arrays.py)
.safetensors   the same arrays                                                    (arrays.py)
.parquet       one row per token                                                  (parquet.py)
a directory    shards of .parquet, written by many processes or machines          (bulk/shards.py)

All formats are written block by block (block.py). Blocks fit into memory, so a corpus can have any
size. `open_vectors` reads files one sentence at a time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmokit.bulk.formats import hdf5, parquet
from elmokit.bulk.formats.arrays import (
    open_npz,
    open_safetensors,
    save_npz,
    save_safetensors,
)
from elmokit.bulk.formats.block import Block, make_block
from elmokit.bulk.formats.layout import DataType, Layout
from elmokit.bulk.formats.reading import GetMetadata, StoredSentence, StoredVectors, report_damage
from elmokit.embed.blocks import TokenIds
from elmokit.embed.vectors import SentenceVectors
from elmokit.errors import ConfigError, DataError, ElmoError, optional_imports, suggest
from elmokit.storage.atomic import replace_file

__all__ = ["Layout", "StoredSentence", "StoredVectors", "open_vectors", "write_vectors"]


class Format(NamedTuple):
    """A file format.

    Attributes:
        package: The package that reads and writes the format.
        write: Writes the blocks of a corpus to a path.
        open: Opens a file.
    """

    package: str
    write: Callable[[Path, Iterable[Block], Layout, GetMetadata], None]
    open: Callable[[Path], StoredVectors]


_HDF5 = Format("h5py", hdf5.write, hdf5.Hdf5Vectors)
_FORMATS = {
    ".h5": _HDF5,
    ".hdf5": _HDF5,
    ".npz": Format("numpy", save_npz, open_npz),
    ".safetensors": Format("safetensors", save_safetensors, open_safetensors),
    ".parquet": Format("pyarrow.parquet", parquet.write, parquet.ParquetVectors),
}


def detect_format(path: Path) -> Format:
    """Return the format of a file.

    Raises:
        ConfigError: The file extension is not supported.
        DependencyError: A package is not installed.
    """
    suffix = path.suffix.lower()
    if suffix not in _FORMATS:
        raise ConfigError(
            f"Unsupported file extension '{suffix}' in {path}.{suggest(suffix, _FORMATS)} The "
            f"extension determines the format; expected one of: {', '.join(_FORMATS)}."
        )
    check_package(_FORMATS[suffix].package, f"The {suffix} format")
    return _FORMATS[suffix]


def check_package(name: str, purpose: str) -> None:
    """Raise an error if a package is not installed.

    Installations without torch may not contain safetensors or h5py.
    """
    with optional_imports("arrow" if name.startswith("pyarrow") else None, purpose):
        importlib.import_module(name)


def open_vectors(path: str | Path) -> StoredVectors:
    """Open a vector file or a directory of shards as a sequence of (tokens, vectors).

    Sentences are read from disk when they are accessed:

        with open_vectors("vectors.h5") as stored:
            tokens, vectors = stored[7]           # vectors: (L + 1, T, 2D), or (T, 2D)

    Args:
        path: An .h5, .npz, .safetensors or .parquet file written by `elmo embed`; an .h5 file
            written by AllenNLP or bilm-tf; a data frame of `elmokit.integrations.arrow` saved as
            .parquet; or the path or URL of a directory of shards written by `elmo embed`. A
            directory contains the sentences of all documents, in order.
    """
    is_remote = "://" in str(path)
    with report_damage(f"Cannot read {path}; it may be damaged"):
        if is_remote or Path(path).is_dir():
            from elmokit.bulk.shards import ShardedVectors

            return ShardedVectors(str(path))
        path = Path(path)
        if not path.suffix and not path.exists():
            raise DataError(f"The directory of shards {path} does not exist.")
        file_format = detect_format(path)
        if not path.is_file():
            raise DataError(f"The vector file {path} does not exist.")
        try:
            return file_format.open(path)
        except ElmoError as error:
            reason = str(error).rstrip(".")
            raise DataError(f"Cannot read {path} as a vector file: {reason}.") from error


def write_vectors(
    path: str | Path,
    sentences: Iterable[SentenceVectors],
    *,
    layer: str | int = "all",
    mix: Sequence[float] | None = None,
    gamma: float = 1.0,
    dtype: DataType = "float32",
) -> None:
    """Write the result of `embed` to a file. For a corpus, use `elmokit.bulk.run.embed_corpus`.

    Args:
        path: The file. The file extension determines the format. An existing file is replaced.
        sentences: The result of `ElmoModel.embed`.
        layer: A layer number, "top", "average", "concat", "mix" or "all".
        mix: With layer "mix", the weights s, one per layer, which are not normalized.
        gamma: With layer "mix", the scale.
        dtype: "float32" or "float16".
    """
    path = Path(path)
    file_format = detect_format(path)
    items = list(sentences)
    n_layers, _, dim = items[0].layers.shape if items else (1, 0, 0)
    weights = None if mix is None else tuple(float(weight) for weight in mix)
    layout = Layout(str(layer), dtype, n_layers, dim, weights, gamma)
    block = _to_block(items, layout)
    with replace_file(path) as temporary:
        file_format.write(temporary, [block], layout, lambda: {"sentences": len(items)})


def _to_block(items: list[SentenceVectors], layout: Layout) -> Block:
    empty = np.zeros((layout.n_layers, 0, layout.dim), np.float32)
    with np.errstate(over="ignore"):  # `check_finite` raises an error
        layers = np.concatenate([empty, *(item.layers for item in items)], axis=1)
        vectors = layout.select(layers).astype(layout.dtype)
    tokens = TokenIds.of([item.tokens for item in items])
    layout.check_finite(vectors, tokens)
    arrays = {
        "vectors": vectors,
        "places": np.array([[0, i + 1, 0] for i in range(len(items))], np.int64).reshape(-1, 3),
    }
    if all(item.offsets is not None for item in items):
        spans = [span for item in items for span in item.offsets or ()]
        arrays["spans"] = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return make_block(tokens, arrays, [" ".join(item.tokens) for item in items], {})
