"""The word types of a corpus: their counts, ranks and character ids."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.data.arrays import save_array, save_rows
from elmokit.data.blocks import Numbers
from elmokit.data.layout import CHARS, N_SPECIALS, OFFSETS, TYPES
from elmokit.model.chars import char_ids_table, is_truncated
from elmokit.text.vocab import SPECIALS

_CHUNK = 1 << 15  # types that are encoded at once


class TypeCounter:
    """All words of a corpus, with provisional ids in order of first occurrence, and counts.

    Args:
        given: Words of a given vocabulary, without the special symbols; their ids are final.
    """

    def __init__(self, given: Iterable[str] = ()) -> None:
        self._numbers = Numbers({word: number for number, word in enumerate(SPECIALS)})
        for word in given:
            _ = self._numbers[word]  # a lookup assigns the next id to a new word
        self._n_given = len(self._numbers)
        self._counts = np.zeros(max(1 << 16, len(self)), np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each provisional id occurred."""
        return self._counts[: len(self)]

    def add(self, words: list[str], ids: NDArray[np.uintc]) -> NDArray[np.uint32]:
        """Count the words of a block.

        Args:
            words: Distinct words, without special symbols.
            ids: The block: the ids of the special symbols, then those of `words`.

        Returns:
            The block in provisional ids.
        """
        table = np.arange(N_SPECIALS + len(words), dtype=np.uint32)
        table[N_SPECIALS:] = np.fromiter(
            map(self._numbers.__getitem__, words), np.uint32, len(words)
        )
        if len(self) > len(self._counts):
            self._counts.resize(2 ** math.ceil(math.log2(len(self))), refcheck=False)
        self._counts[table] += np.bincount(
            ids, minlength=len(table)
        )  # no id occurs twice in the table
        return table[ids]

    def rank(self, counts: NDArray[np.int64]) -> RankedTypes:
        """Sort the words by decreasing count, then by word; those of a given vocabulary stay.

        Args:
            counts: How often each provisional id occurs in the training part.
        """
        words, first = list(self._numbers), self._n_given
        by_word = sorted(range(first, len(words)), key=words.__getitem__)
        order = np.array([*range(first), *by_word])
        # Stable, so that words with equal counts stay sorted by word.
        falling = np.argsort(-counts[order[first:]], kind="stable")
        order[first:] = order[first:][falling]
        ranks = np.empty(len(words), np.uint32)
        ranks[order] = np.arange(len(words), dtype=np.uint32)
        return RankedTypes([words[number] for number in order.tolist()], counts[order], ranks)


@dataclass(frozen=True)
class RankedTypes:
    """The words of a corpus in order of their final ids.

    Attributes:
        words: The words, special symbols first.
        counts: How often each occurs in the training part.
        ranks: The final id of each provisional id.
    """

    words: list[str]
    counts: NDArray[np.int64]
    ranks: NDArray[np.uint32]

    def vocabulary_size(self, min_count: int, max_vocab: int | None) -> int:
        """Return the size of the vocabulary, including special symbols."""
        frequent = N_SPECIALS + int((self.counts[N_SPECIALS:] >= min_count).sum())
        return frequent if max_vocab is None else min(frequent, max_vocab)


def write_types(types: RankedTypes, folder: Path, max_characters: int) -> NDArray[np.bool_]:
    """Write the words and the table of their character ids.

    Returns:
        Whether each word is too long for a row of that table.
    """
    n = len(types.words)
    parts = [types.words[start : start + _CHUNK] for start in range(0, n, _CHUNK)]
    lengths = np.zeros(n + 1, np.int64)
    with (folder / TYPES).open("wb") as file:
        for number, word in enumerate(types.words, start=1):
            lengths[number] = file.write(f"{word}\n".encode())
    save_array(folder / OFFSETS, np.cumsum(lengths))
    encoded = (char_ids_table(words, max_characters) for words in parts)
    save_rows(folder / CHARS, (n, max_characters), np.dtype("<u2"), encoded)
    return np.array([is_truncated(word, max_characters) for word in types.words])
