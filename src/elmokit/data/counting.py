"""The first pass of `elmo prepare`, which tokenizes the text and counts words.

The text is processed in blocks, in parallel. The words of a block first get ids that are valid only
in this block. `TypeCounter` replaces them by provisional ids for the entire text, which are written
to a temporary file. The final ids depend on the counts, so they are assigned in the second pass.
"""

from __future__ import annotations

import math
import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.data.layout import END_ID, ID_TYPE, N_SPECIALS, RESERVED, UNKNOWN_ID
from elmokit.data.reading import LineSplitter, read_blocks
from elmokit.errors import DataError
from elmokit.parallel import parallel_map
from elmokit.progress import Progress
from elmokit.text.lines import SkippedLines
from elmokit.text.vocab import SPECIALS

File = str | os.PathLike[str]
OnProgress = Callable[[Progress], None]

IdArray = NDArray[np.uint32]

#: Approximate size of a block, which takes about half a second.
BLOCK_CHARACTERS = 1 << 21
_CHUNK = 1 << 22  # number of ids that are read at once
_ID_BYTES = np.dtype(ID_TYPE).itemsize


class WordIds(dict[str, int]):
    """Ids of words, assigned in order of first occurrence.

    Args:
        reserved: Words that already have an id.
        first: The id of the first new word.
    """

    def __init__(self, reserved: Mapping[str, int], first: int = N_SPECIALS) -> None:
        super().__init__(reserved)
        self._n_reserved = len(reserved)
        self._first = first

    def __missing__(self, word: str) -> int:
        number = self[word] = self._first + len(self) - self._n_reserved
        return number

    def new_words(self) -> list[str]:
        """Return the words that are not reserved, in order of their ids."""
        return list(self)[self._n_reserved :]


class CountedBlock(NamedTuple):
    """The result of `count_block`.

    Attributes:
        words: The words of the block in the order of their ids, one per line. The first id is 3.
        ids: The ids of all tokens, with `</S>` after each sentence.
        starts: The index in `ids` of the start of each document.
        n_bytes: The length of the text in bytes.
    """

    words: bytes
    ids: NDArray[np.uintc]
    starts: NDArray[np.int64]
    n_bytes: int


def count_block(text: bytes, splitter: LineSplitter) -> CountedBlock:
    """Tokenize a block of text (see `read_blocks`)."""
    ids_by_word = WordIds(dict.fromkeys(RESERVED, UNKNOWN_ID))
    ids = array("I")
    starts = []
    for line in text.decode().split("\n"):
        if not line:
            starts.append(len(ids))
            continue
        for sentence in splitter.sentences(line):
            # dict.__getitem__ calls __missing__ for new words, so this loop runs in C.
            ids.extend(map(ids_by_word.__getitem__, sentence))
            ids.append(END_ID)
    return CountedBlock(
        words="\n".join(ids_by_word.new_words()).encode(),
        ids=np.frombuffer(ids, np.uintc),
        starts=np.array(starts, np.int64),
        n_bytes=len(text),
    )


@dataclass(frozen=True)
class RankedTypes:
    """The words of a corpus in the order of their final ids.

    Attributes:
        words: The words, beginning with the special symbols.
        counts: Number of occurrences of each word in the training split.
        ranks: The final id for each provisional id.
    """

    words: list[str]
    counts: NDArray[np.int64]
    ranks: NDArray[np.uint32]

    def vocabulary_size(self, min_count: int, max_vocab: int | None) -> int:
        """Return the size of the vocabulary, including special symbols."""
        frequent = N_SPECIALS + int((self.counts[N_SPECIALS:] >= min_count).sum())
        return frequent if max_vocab is None else min(frequent, max_vocab)


class TypeCounter:
    """Counts words and assigns provisional ids, in order of first occurrence.

    Args:
        vocabulary: A given vocabulary without the special symbols. The ids of its words are final.
    """

    def __init__(self, vocabulary: Iterable[str] = ()) -> None:
        self._numbers = WordIds({word: number for number, word in enumerate(SPECIALS)})
        for word in vocabulary:
            _ = self._numbers[word]  # a lookup assigns the next id to a new word
        self._n_fixed = len(self._numbers)
        self._counts = np.zeros(max(1 << 16, len(self)), np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of occurrences of each provisional id."""
        return self._counts[: len(self)]

    def add(self, words: list[str], ids: NDArray[np.uintc]) -> NDArray[np.uint32]:
        """Count the words of a block.

        Args:
            words: Distinct words, without special symbols.
            ids: The tokens of the block, as ids of special symbols (0 to 2) and `words` (from 3).

        Returns:
            The tokens as provisional ids.
        """
        table = np.arange(N_SPECIALS + len(words), dtype=np.uint32)
        table[N_SPECIALS:] = np.fromiter(
            map(self._numbers.__getitem__, words), np.uint32, len(words)
        )
        if len(self) > len(self._counts):
            self._counts.resize(2 ** math.ceil(math.log2(len(self))), refcheck=False)
        # This works because the table does not contain duplicates.
        self._counts[table] += np.bincount(ids, minlength=len(table))
        return table[ids]

    def rank(self, counts: NDArray[np.int64]) -> RankedTypes:
        """Sort words by decreasing count, then alphabetically.

        The words of a given vocabulary keep their ids.

        Args:
            counts: Number of occurrences of each provisional id in the training split.
        """
        words, first = list(self._numbers), self._n_fixed
        by_word = sorted(range(first, len(words)), key=words.__getitem__)
        order = np.array([*range(first), *by_word])
        # A stable sort keeps words with equal counts in alphabetical order.
        by_count = np.argsort(-counts[order[first:]], kind="stable")
        order[first:] = order[first:][by_count]
        ranks = np.empty(len(words), np.uint32)
        ranks[order] = np.arange(len(words), dtype=np.uint32)
        return RankedTypes([words[number] for number in order.tolist()], counts[order], ranks)


@dataclass
class CountedText:
    """The tokens of text files as provisional ids, with their counts.

    Args:
        path: The temporary file for the provisional ids.
        splitter: Splits lines into sentences and words.
        skipped: Counts lines that are not valid UTF-8, and defines whether they are allowed.
        total_bytes: The total size of the text in bytes, if known.
        on_progress: Called after each block.
        vocabulary: A given vocabulary without the special symbols.

    Attributes:
        counter: Counts the words of the text.
        n_bytes: Number of bytes of text that have been read.
    """

    path: Path
    splitter: LineSplitter
    skipped: SkippedLines
    total_bytes: int | None
    on_progress: OnProgress | None
    vocabulary: InitVar[Sequence[str]]

    def __post_init__(self, vocabulary: Sequence[str]) -> None:
        self.counter = TypeCounter(vocabulary)
        self.n_bytes = 0
        self._starts: list[NDArray[np.int64]] = []  # of documents
        self._n_ids = 0

    @property
    def bounds(self) -> NDArray[np.int64]:
        """The start of each document, and the end of the last one."""
        return np.concatenate([*self._starts, [self._n_ids]])

    def read(self, files: Sequence[File], n_workers: int) -> None:
        """Tokenize and count the words of files.

        Raises:
            DataError: The files cannot be read, or contain no words.
        """
        n_before = self._n_ids
        blocks = read_blocks(files, BLOCK_CHARACTERS, self.skipped)
        count = partial(count_block, splitter=self.splitter)
        with self.path.open("ab") as file:
            for block in parallel_map(count, blocks, n_workers):
                words = block.words.decode().split("\n") if block.words else []
                file.write(self.counter.add(words, block.ids).astype(ID_TYPE).data)
                self._starts.append(block.starts + self._n_ids)
                self._n_ids += len(block.ids)
                self.n_bytes += block.n_bytes
                if self.on_progress is not None:
                    tokens = self._n_ids - int(self.counter.counts[END_ID])
                    self.on_progress(Progress(tokens, self.n_bytes, self.total_bytes))
        if self._n_ids == n_before:
            names = ", ".join(os.fspath(file) for file in files[:3])
            more = f" and {len(files) - 3:,} more" if len(files) > 3 else ""
            raise DataError(f"{names}{more}: no words found. Expected files with text.")

    def chunks(self, held_out: NDArray[np.bool_]) -> Iterator[tuple[IdArray, NDArray[np.bool_]]]:
        """Yield all provisional ids in order, and whether each belongs to a held-out document."""
        bounds = self.bounds
        for start in range(0, self._n_ids, _CHUNK):
            ids = np.fromfile(self.path, ID_TYPE, _CHUNK, offset=start * _ID_BYTES)
            first = np.searchsorted(bounds, start, side="right") - 1
            last = np.searchsorted(bounds, start + len(ids), side="left")
            clipped: NDArray[np.int64] = np.clip(bounds[first : last + 1], start, start + len(ids))
            yield ids, np.repeat(held_out[first:last], np.diff(clipped))
