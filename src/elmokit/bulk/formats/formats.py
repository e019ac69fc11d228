"""Select the module that writes and reads a file, by its suffix."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from elmokit.bulk.formats.block import Block, make_block
from elmokit.bulk.formats.layout import Layout
from elmokit.bulk.formats.reading import About, StoredVectors
from elmokit.embed.token_ids import TokenIds
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

#: Suffix -> module of this package.
SUFFIXES = {
    ".h5": "hdf5",
    ".hdf5": "hdf5",
    ".npz": "npz",
    ".safetensors": "tensors",
    ".parquet": "parquet",
}
# Packages that the modules need besides numpy.
_PACKAGES = {"hdf5": "h5py", "tensors": "safetensors"}


class Format(Protocol):
    """The functions of the module of a format."""

    def write(self, path: Path, blocks: Iterable[Block], layout: Layout, about: About) -> None:
        """Write the blocks of a corpus; the caller renames the file."""

    def read(self, path: Path) -> StoredVectors:
        """Open a file."""


def format_of(path: Path) -> Format:
    """Return the module for a path; raise an error for an unknown suffix or a missing extra."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ConfigError(
            f"Invalid suffix '{suffix}' of {path}.{nearest(suffix, SUFFIXES)} The suffix selects "
            f"the format; expected one of: {', '.join(SUFFIXES)}."
        )
    module = importlib.import_module(f"elmokit.bulk.formats.{SUFFIXES[suffix]}")
    if suffix == ".parquet":
        module.check_available()
    elif SUFFIXES[suffix] in _PACKAGES:
        check_package(_PACKAGES[SUFFIXES[suffix]], f"A {suffix} file")
    return cast(Format, module)


def check_package(name: str, purpose: str) -> None:
    """Raise an error if a package is missing, as in an installation without torch."""
    with optional_imports(None, purpose):
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
    reader = format_of(path)
    if not path.is_file():
        raise DataError(f"The vector file {path} does not exist.")
    try:
        return reader.read(path)
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
    writer = format_of(path)
    items = list(sentences)
    n_layers, _, dim = items[0].layers.shape if items else (1, 0, 0)
    weights = None if mix is None else tuple(float(weight) for weight in mix)
    layout = Layout(str(layer), dtype, n_layers, dim, weights, gamma)
    block = _block_of(items, layout)
    with replace_file(path) as temporary:
        writer.write(temporary, [block], layout, lambda: {"sentences": len(items)})


def _block_of(items: list[SentenceVectors], layout: Layout) -> Block:
    empty = np.zeros((layout.n_layers, 0, layout.dim), np.float32)
    with np.errstate(over="ignore"):  # `check_finite` raises an error
        layers = np.concatenate([empty, *(item.layers for item in items)], axis=1)
        vectors = layout.choose(layers).astype(layout.dtype)
    tokens = TokenIds.of([item.tokens for item in items])
    ends = np.cumsum(tokens.lengths)
    texts = [" ".join(item.tokens) for item in items]
    layout.check_finite(vectors, lambda k: texts[int(np.searchsorted(ends, k, side="right"))])
    arrays: dict[str, NDArray[Any]] = {
        "vectors": vectors,
        "lengths": tokens.lengths,
        "ids": tokens.ids,
        "places": np.array([[0, i + 1, 0] for i in range(len(items))], np.int64).reshape(-1, 3),
    }
    if all(item.offsets is not None for item in items):
        spans = [span for item in items for span in item.offsets or ()]
        arrays["spans"] = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return make_block(arrays, tokens.words, texts, {})
