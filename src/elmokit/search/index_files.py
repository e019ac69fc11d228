"""The folder of a token index: plain arrays that grow while it is made, and are mapped to be read.

S is the number of sentences, N that of tokens, V that of different words, D the length of a vector.

meta.json            what was indexed and how; written last
words.npy            (N,)     which word each token is
spans.npy            (N, 2)   start and end of each token in its line (-1 for tokenised text)
products.npy         (N, P)   h_i . h_j of the stored layers, i <= j: give the length of any mix
vectors-NAME.npy     (N, D)   a vector per token and stored space, float16 or int8
scales-NAME.npy      (N,)     what to multiply it with to give it the length 1 again
vectors-layer-0.npy  (V, D)   layer 0 knows the word alone: one per word is enough
spellings.npy        (bytes,) the words in UTF-8; word v ends before spelling_ends[v]
spelling_ends.npy    (V,)
ends.npy             (S,)     sentence i ends before token ends[i]
places.npy           (S, 4)   file, line, sentence in the line, where its text begins in the line
prints.npy           (S,)     a number that sentences share only if they are the same word by word
text.npy             (bytes,) the sentences as written; sentence i ends before text_ends[i]
text_ends.npy        (S,)
ann-NAME.faiss       a faiss index over the same vectors, if one was asked for
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal, get_args

import numpy as np
from numpy.lib import format as npy
from numpy.typing import DTypeLike, NDArray

from elmokit.embed.spaces import Space
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError, DataError
from elmokit.storage.atomic import replace_file

FORMAT = "elmokit-index"
FORMAT_VERSION = 1
META = "meta.json"
HEAD = 128  # bytes that a .npy file begins with: room for any shape

Numbers = Literal["float16", "int8"]
Array = NDArray[Any]


@dataclass(frozen=True)
class IndexMeta:
    """What an index holds.

    Attributes:
        model: The fingerprint of the model.
        source: Where the model was loaded from.
        precision: How it computed.
        state: What each sentence started from.
        numbers: How vectors are stored, "float16" or "int8".
        stored: The spaces that are stored: for each its name and its weights.
        n_layers: Layers of the model, L + 1.
        dim: The length of a vector.
        tokens: Tokens in the index.
        sentences: Sentences in the index.
        words: Different words in it.
        inputs: The files, as they were named.
        digest: Of the text.
        run: All that decided the bytes of the index besides the text.
        ann: For each space with a faiss index what it is, and its measured recall.
    """

    model: str
    source: str
    precision: str
    state: Literal["reset", "warm"]
    numbers: Numbers
    stored: dict[str, list[float]]
    n_layers: int
    dim: int
    tokens: int
    sentences: int
    words: int
    inputs: list[str]
    digest: str
    run: dict[str, Any]
    ann: dict[str, dict[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def spaces(self) -> list[Space]:
        """The spaces that are stored."""
        return [Space(name, tuple(weights)) for name, weights in self.stored.items()]

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers that are stored as they are."""
        return layers_of(self.spaces)

    def write(self, folder: Path) -> None:
        """Write the file that makes a folder an index."""
        values = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            **dataclasses.asdict(self),
        }
        with replace_file(folder / META) as file:
            file.write_text(json.dumps(values, ensure_ascii=False, indent=1), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> IndexMeta:
        """Read it again; raise if the folder is no index, or one of a newer elmokit."""
        if not folder.is_dir():
            found = "is a file" if folder.exists() else "does not exist"
            raise DataError(
                f"{folder} {found}, expected the folder of an index. Make one with: "
                f"elmo index TEXT -o {folder}"
            )
        if not is_index(folder):
            raise DataError(
                f"{folder} is not an index: it has no {META} of one. Make one with: "
                "elmo index TEXT -o FOLDER"
            )
        values = _read_values(folder)
        if values.pop("format_version") != FORMAT_VERSION:
            raise DataError(
                f"{folder} is an index of another version than {FORMAT_VERSION}, the one that this "
                "elmokit knows. Make it again with: elmo index"
            )
        values.pop("format")
        try:
            meta = cls(**values)
        except TypeError as error:
            raise damaged(folder, str(error)) from error
        if wrong := meta.wrong():
            raise damaged(folder, f"{META}: {wrong}")
        return meta

    def wrong(self) -> str:
        """Return what cannot be right about values that came from a file; nothing if all can."""
        numbers = (self.n_layers, self.dim, self.tokens, self.sentences, self.words)
        if not all(isinstance(n, int) and n > 0 for n in numbers):
            return "sizes are whole numbers above 0"
        if self.numbers not in get_args(Numbers) or self.state not in ("reset", "warm"):
            return f"numbers {self.numbers!r} and state {self.state!r} are not known"
        lists = isinstance(self.inputs, list) and isinstance(self.stored, dict) and self.stored
        if not lists or not all(isinstance(name, str) for name in self.inputs):
            return "inputs are a list of names, stored is an object"
        for name, weights in self.stored.items():
            if not isinstance(weights, list) or len(weights) != self.n_layers:
                return f"{name} has one weight for each layer"
            if not all(isinstance(s, int | float) for s in weights) or "/" in name:
                return f"{name} is no space"
        return ""


def is_index(folder: Path) -> bool:
    """Tell whether a folder says of itself that it is an index."""
    try:
        return bool(_read_values(folder).get("format") == FORMAT)
    except DataError:
        return False


def _read_values(folder: Path) -> dict[str, Any]:
    try:
        values = json.loads((folder / META).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise damaged(folder, f"{META}: {error}") from error
    if not isinstance(values, dict) or "format_version" not in values:
        raise damaged(folder, f"{META} does not say its format and version")
    return values


def damaged(folder: Path, why: str) -> DataError:
    """Say that something is missing from an index, or wrong in it."""
    return DataError(f"{folder} is not a whole index ({why}). Make it again with: elmo index")


def slug(name: str) -> str:
    """Return the name of a space as file names have it."""
    return name.replace(" ", "-")


def layers_of(spaces: Sequence[Space]) -> tuple[int, ...]:
    """Return those of some spaces that are layers, by number."""
    return tuple(sorted(j for space in spaces if (j := space.layer) is not None))


def pairs_of(layers: Sequence[int]) -> list[tuple[int, int]]:
    """Return the columns of `products.npy`: which two layers each of them multiplies."""
    return [(i, j) for place, i in enumerate(layers) for j in layers[place:]]


def to_store(spaces: Sequence[Space]) -> list[Space]:
    """Leave out what can be computed from the other spaces: mixes of layers that are all there."""
    layers = layers_of(spaces)
    if not spaces:
        raise ConfigError("An index needs at least one layer.")
    return [s for s in spaces if s.layer is not None or not set(used_layers(s)) <= set(layers)]


def used_layers(space: Space) -> list[int]:
    """Return the layers that have a weight other than zero."""
    return [j for j, s in enumerate(space.weights) if s]


# ------------------------------------------------------------------------------------- the arrays


def columns(stored: Sequence[Space], dim: int, numbers: Numbers) -> dict[str, Column]:
    """List the arrays of an index: type, and shape of one row."""
    found = {
        "words": Column(np.int32),
        "spans": Column(np.int32, (2,)),
        "spellings": Column(np.uint8),
        "spelling_ends": Column(np.int64),
        "ends": Column(np.int64),
        "places": Column(np.int64, (4,)),
        "prints": Column(np.int64),
        "text": Column(np.uint8),
        "text_ends": Column(np.int64),
    }
    layers = layers_of(stored)
    if len(layers) > 1:
        found["products"] = Column(np.float32, (len(pairs_of(layers)),))
    for space in stored:
        found[f"vectors-{slug(space.name)}"] = Column(numbers, (dim,))
        found[f"scales-{slug(space.name)}"] = Column(np.float32)
    return found


@dataclass(frozen=True)
class Column:
    """The rows of an array."""

    dtype: DTypeLike
    shape: tuple[int, ...] = ()

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return int(np.dtype(self.dtype).itemsize * np.prod(self.shape, dtype=np.int64))


class GrowingArray:
    """A .npy file that rows are added to; it is one once `finish` has written its head.

    Args:
        path: The file.
        column: Its rows.
        rows: How many of the rows that are there to keep.
    """

    def __init__(self, path: Path, column: Column, rows: int = 0) -> None:
        self.column = column
        self.rows = rows
        self._file: IO[bytes] = path.open("r+b" if rows else "w+b")
        size = HEAD + rows * column.row_bytes
        if rows and path.stat().st_size < size:
            self._file.close()
            raise DataError(
                f"{path} is shorter than the interrupted run left it. Start anew with --overwrite."
            )
        self._file.truncate(size)
        self._file.seek(size)

    def append(self, values: Array) -> None:
        """Add rows."""
        rows = np.ascontiguousarray(values, dtype=self.column.dtype)
        self._file.write(rows.data)
        self.rows += len(rows)

    def sync(self) -> None:
        """Bring all rows to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def finish(self) -> None:
        """Write the head and close."""
        self._file.seek(0)
        self._file.write(_head(self.column, self.rows))
        self.sync()
        self.close()

    def close(self) -> None:
        """Close without a head."""
        self._file.close()


def _head(column: Column, rows: int) -> bytes:
    about = {
        "descr": npy.dtype_to_descr(np.dtype(column.dtype)),
        "fortran_order": False,
        "shape": (rows, *column.shape),
    }
    start = npy.magic(1, 0)
    text = repr(about).encode("ascii").ljust(HEAD - len(start) - 3) + b"\n"
    return start + len(text).to_bytes(2, "little") + text


def map_arrays(
    folder: Path, names: Mapping[str, Column], rows: Mapping[str, int]
) -> dict[str, Any]:
    """Map the arrays of an index into memory.

    Args:
        folder: The index.
        names: Its arrays.
        rows: How many rows an array must have, where that is known.
    """
    found: dict[str, Array] = {}
    for name, column in names.items():
        path = folder / f"{name}.npy"
        try:
            # "c": pages are shared until written, and nobody writes; torch takes them as they are.
            array = np.load(path, mmap_mode="c", allow_pickle=False)
        except (OSError, ValueError) as error:
            raise damaged(folder, f"{path.name}: {error}") from error
        n = rows.get(name, len(array) if array.ndim else -1)
        if array.dtype != np.dtype(column.dtype) or array.shape != (n, *column.shape):
            raise damaged(
                folder,
                f"{path.name} is {array.dtype} of shape {array.shape}, expected "
                f"{np.dtype(column.dtype)} of {(n, *column.shape)}",
            )
        found[name] = array
    return found


def rounded(vectors: FloatArray, numbers: Numbers) -> tuple[Array, FloatArray]:
    """Round vectors; the scales returned beside make them vectors of length 1 again."""
    small: Array = vectors.astype(np.float16)
    if numbers == "int8":
        largest = np.abs(vectors).max(axis=1, keepdims=True)
        largest[largest == 0] = 1
        small = np.rint(vectors * (127 / largest)).astype(np.int8)
    lengths = np.linalg.norm(small.astype(np.float32), axis=1)
    lengths[lengths == 0] = 1
    return small, (1 / lengths).astype(np.float32)
