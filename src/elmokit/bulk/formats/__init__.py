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

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.bulk.formats.block import Block, make_block
from elmokit.bulk.formats.columns import Array
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.reading import StoredSentence, StoredVectors
from elmokit.embed.blocks import TokenIds
from elmokit.embed.vectors import SentenceVectors
from elmokit.errors import (
    ConfigError,
    DataError,
    DependencyError,
    ElmoError,
    nearest,
    optional_imports,
)
from elmokit.storage.atomic import replace_file
from elmokit.storage.regular import check_regular_files

__all__ = ["Layout", "StoredSentence", "StoredVectors", "open_vectors", "write_vectors"]

# The module of each suffix, and the package that it needs besides numpy.
_MODULES = {
    ".h5": ("hdf5", "h5py"),
    ".hdf5": ("hdf5", "h5py"),
    ".npz": ("npz", "numpy"),
    ".safetensors": ("tensors", "safetensors"),
    ".parquet": ("parquet", "pyarrow.parquet"),
}


def format_of(path: Path) -> Any:
    """Return the module that writes and reads a file.

    It has a function `write(path, blocks, layout, about)`, which writes the blocks of a corpus, and
    a class `Vectors`, a `StoredVectors`.

    Raises:
        ConfigError: The suffix is unknown.
        DependencyError: A package is not installed.
    """
    suffix = path.suffix.lower()
    if suffix not in _MODULES:
        raise ConfigError(
            f"Invalid suffix '{suffix}' of {path}.{nearest(suffix, _MODULES)} The suffix selects "
            f"the format; expected one of: {', '.join(_MODULES)}."
        )
    module, package = _MODULES[suffix]
    check_package(package, f"A {suffix} file")
    return importlib.import_module(f"elmokit.bulk.formats.{module}")


def check_package(name: str, purpose: str) -> None:
    """Raise an error if a package is missing; without torch, safetensors and h5py may be."""
    with optional_imports("arrow" if name.startswith("pyarrow") else None, purpose):
        importlib.import_module(name)


def open_vectors(path: str | Path) -> StoredVectors:
    """Open vectors on disk: a sequence of (tokens, vectors), which are read on access.

        with open_vectors("vectors.h5") as stored:
            tokens, vectors = stored[7]           # vectors: (L + 1, T, 2D), or (T, 2D)

    Args:
        path: An .h5, .npz, .safetensors or .parquet file of `elmo embed`; an .h5 file of AllenNLP
            or bilm-tf; a data frame of `elmokit.integrations.arrow` saved as .parquet. Or the
            folder of shards that `elmo embed` has filled, by its path or address: the sentences of
            all documents, one after the other.
    """
    try:
        return _open_vectors(path)
    except (ElmoError, MemoryError):
        raise
    except Exception as error:  # each library has its own errors for damaged files
        raise DataError(
            f"Cannot read {path}; it may be damaged: {error}. Copy or compute it again."
        ) from error


def _open_vectors(path: str | Path) -> StoredVectors:
    if "://" in str(path) or Path(path).is_dir():
        from elmokit.bulk.formats.sharded import ShardedVectors

        if "://" not in str(path):
            check_regular_files(Path(path), DataError)
        return ShardedVectors(str(path))
    path = Path(path)
    if not path.suffix and not path.exists():
        raise DataError(f"The directory of shards {path} does not exist.")
    module = format_of(path)
    if not path.is_file():
        raise DataError(f"The vector file {path} does not exist.")
    try:
        stored: StoredVectors = module.Vectors(path)
        return stored
    except DependencyError:
        raise
    except ElmoError as error:
        why = str(error).rstrip(".")
        raise DataError(f"Cannot read {path} as a vector file: {why}.") from error


def write_vectors(
    path: str | Path,
    sentences: Iterable[SentenceVectors],
    *,
    layer: str | int = "all",
    mix: Sequence[float] | None = None,
    gamma: float = 1.0,
    dtype: str = "float32",
) -> None:
    """Write vectors that are in memory; for a corpus, use `elmokit.bulk.run.embed_corpus`.

    Args:
        path: The file; its suffix selects the format. An existing file is replaced.
        sentences: The result of `ElmoModel.embed`.
        layer: A layer number, "top", "average", "concat", "mix" or "all".
        mix: With "mix", the weights s, one per layer, used as they are.
        gamma: With "mix", the scale.
        dtype: "float32" or "float16".
    """
    path = Path(path)
    module = format_of(path)
    items = list(sentences)
    n_layers, _, dim = items[0].layers.shape if items else (1, 0, 0)
    weights = None if mix is None else tuple(float(weight) for weight in mix)
    layout = Layout(str(layer), dtype, n_layers, dim, weights, gamma)
    block = _block_of(items, layout)
    with replace_file(path) as temporary:
        module.write(temporary, [block], layout, lambda: {"sentences": len(items)})


def _block_of(items: list[SentenceVectors], layout: Layout) -> Block:
    empty = np.zeros((layout.n_layers, 0, layout.dim), np.float32)
    with np.errstate(over="ignore"):  # `check_finite` raises an error
        layers = np.concatenate([empty, *(item.layers for item in items)], axis=1)
        vectors = layout.choose(layers).astype(layout.dtype)
    tokens = TokenIds.of([item.tokens for item in items])
    ends = np.cumsum(tokens.lengths)
    texts = [" ".join(item.tokens) for item in items]
    layout.check_finite(vectors, lambda k: texts[int(np.searchsorted(ends, k, side="right"))])
    arrays: dict[str, Array] = {
        "vectors": vectors,
        "lengths": tokens.lengths,
        "ids": tokens.ids,
        "places": np.array([[0, i + 1, 0] for i in range(len(items))], np.int64).reshape(-1, 3),
    }
    if all(item.offsets is not None for item in items):
        spans = [span for item in items for span in item.offsets or ()]
        arrays["spans"] = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return make_block(arrays, tokens.words, texts, {})
