"""The vocabulary of a task model: words of its training data, and others from a table.

A word is looked up as written, then lowercased; unknown words use row 0.

    words.txt              one word per line, in the order of the rows, without row 0
    words.safetensors      their vectors, float16: `training` (row 0 first) and `others`
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from elmokit.embed.static import StaticVectors, load_static
from elmokit.errors import WeightsError
from elmokit.sources.tensors import read_shapes, read_tensors, write_tensors
from elmokit.storage.atomic import restore_directory
from elmokit.storage.regular import read_bounded
from elmokit.tasks.config import StaticConfig

UNKNOWN_ROW = 0
FILE = "words.txt"
VECTORS = "words.safetensors"

# Minimum count of a word that is not in the table.
_SEEN = 2


class Words:
    """Words and their vectors.

    Args:
        words: The words of rows 1, 2, ...
        n_training: Number of rows of training words, including row 0.
        vectors: One row per word and row 0, float16.
    """

    def __init__(self, words: Sequence[str], n_training: int, vectors: NDArray[np.float16]) -> None:
        self.words = list(words)
        self.n_training = n_training
        self.vectors = vectors
        self._rows = {word: row for row, word in enumerate(self.words, start=1)}

    @property
    def dim(self) -> int:
        """The size of a vector."""
        return int(self.vectors.shape[1])

    def __len__(self) -> int:
        return len(self.vectors)

    def rows(self, tokens: Iterable[str]) -> list[int]:
        """Return the row of each token."""
        get = self._rows.get
        return [get(token) or get(token.lower(), UNKNOWN_ROW) for token in tokens]

    @property
    def digest(self) -> str:
        """A digest of words and vectors."""
        digest = hashlib.blake2b("\n".join(self.words).encode("utf-8", "surrogatepass"))
        digest.update(np.ascontiguousarray(self.vectors).data)
        return digest.hexdigest()[:32]

    @classmethod
    def build(
        cls,
        config: StaticConfig,
        table: StaticVectors | None,
        training: Iterable[Sequence[str]],
        others: Iterable[Sequence[str]] = (),
        *,
        seed: int = 0,
    ) -> Words:
        """Collect the words of the data with their vectors.

        Args:
            config: Number of words to keep, and the size of vectors without a table.
            table: Pretrained vectors, see `load_table`.
            training: Training texts.
            others: Other texts, such as those of the dev set; only their words with vectors in
                the table are added.
            seed: Random seed for the vectors of words that are not in the table.
        """
        counts = Counter(token for text in training for token in text)
        places: dict[str, int | None] = {}  # a word -> its row in the table
        without: Counter[str] = Counter()  # lowercased words that are not in the table
        for token, count in counts.items():
            if table is None or (place := table.place(token)) is None:
                without[token.lower()] += count
            else:
                places[table.words[place]] = place
        for token, count in without.items():
            if count >= _SEEN:
                places.setdefault(token, None)
        n_training = len(places) + 1
        if table is not None:
            for token in dict.fromkeys(token for text in others for token in text):
                if (place := table.place(token)) is not None:
                    places.setdefault(table.words[place], place)
            for place, word in enumerate(table.words[: config.words]):
                places.setdefault(word, place)
        return cls(list(places), n_training, _vectors(table, config.dim, places, seed))

    def save(self, folder: Path) -> None:
        """Write words and vectors to a directory."""
        lines = (word.replace("\n", " ").replace("\r", " ") for word in self.words)
        text = "".join(f"{line}\n" for line in lines)
        (folder / FILE).write_bytes(text.encode("utf-8", "surrogatepass"))
        tensors = {
            "training": torch.from_numpy(self.vectors[: self.n_training]),
            "others": torch.from_numpy(self.vectors[self.n_training :]),
        }
        write_tensors(tensors, folder / VECTORS, storage="float16")

    @classmethod
    def load(cls, folder: Path) -> Words:
        """Read what `save` wrote."""
        restore_directory(folder)
        shapes = read_shapes(folder / VECTORS)
        tensors = read_tensors(folder / VECTORS, shapes)
        try:
            text = read_bounded(folder / FILE, WeightsError).decode("utf-8", "surrogatepass")
        except (OSError, UnicodeDecodeError) as error:
            raise WeightsError(f"Cannot read {folder / FILE}: {error}.") from error
        words = text.split("\n")[:-1]
        if tensors.keys() != {"training", "others"}:
            raise WeightsError(
                f"{folder / VECTORS} does not contain the word vectors of a task model."
            )
        vectors = torch.cat([tensors["training"], tensors["others"]]).numpy().astype(np.float16)
        if len(vectors) != len(words) + 1:
            raise WeightsError(
                f"{folder / FILE} has {len(words):,} words and {VECTORS} {len(vectors) - 1:,} "
                "vectors. The files are of different models."
            )
        return cls(words, len(tensors["training"]), vectors)


def load_table(config: StaticConfig) -> StaticVectors | None:
    """Load the static vectors of a task model, if it uses any."""
    return None if config.source == "none" else load_static(config.source)


def _vectors(
    table: StaticVectors | None, dim: int, places: dict[str, int | None], seed: int
) -> NDArray[np.float16]:
    random = np.random.default_rng(seed)
    scale = 0.1
    if table is not None:
        dim = int(table.vectors.shape[1])
        scale = float(np.asarray(table.vectors[:10_000], dtype=np.float32).std())
    vectors = np.empty((len(places) + 1, dim), dtype=np.float16)
    for row, place in enumerate([None, *places.values()]):
        if table is None or place is None:
            vectors[row] = random.normal(0, scale, dim)
        else:
            vectors[row] = table.vectors[place]
    return vectors
