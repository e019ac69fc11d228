"""The first pass of `elmo prepare`, which tokenizes the text and assigns provisional ids.

Blocks of text are processed in parallel. The words of a block first get ids that are valid only in
this block. `TokenizedText` replaces them with provisional ids for the entire text, in order of
first occurrence, and writes these to a temporary file. The final ids depend on the counts, so they
are assigned in the second pass.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
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

File = str | os.PathLike[str]
OnProgress = Callable[[Progress], None]

#: Approximate size of a block, which takes about half a second to tokenize.
BLOCK_CHARACTERS = 1 << 21
_CHUNK = 1 << 22  # number of ids to read at once
_ID_BYTES = np.dtype(ID_TYPE).itemsize


class WordIds(dict[str, int]):
    """The ids of words, assigned in order of first occurrence.

    Args:
        reserved: Words that already have an id.
        first: The id of the first new word.
    """

    def __init__(self, reserved: Mapping[str, int], first: int) -> None:
        super().__init__(reserved)
        self._n_reserved = len(reserved)
        self._first = first

    def __missing__(self, word: str) -> int:
        word_id = self[word] = self._first + len(self) - self._n_reserved
        return word_id

    def new_words(self) -> list[str]:
        """Return the words that are not reserved, in order of id."""
        return list(self)[self._n_reserved :]


class TokenizedBlock(NamedTuple):
    """The result of `tokenize_block`.

    Attributes:
        words: The distinct words of the block, one per line, in order of id, starting with id 3.
        ids: The ids of all tokens, with `</S>` after each sentence.
        starts: For each document that starts in this block, the index of its first token in `ids`.
        n_bytes: The length of the text in bytes.
    """

    words: bytes
    ids: NDArray[np.uintc]
    starts: NDArray[np.int64]
    n_bytes: int


def tokenize_block(text: bytes, splitter: LineSplitter) -> TokenizedBlock:
    """Tokenize a block of text (see `read_blocks`)."""
    ids_by_word = WordIds(dict.fromkeys(RESERVED, UNKNOWN_ID), first=N_SPECIALS)
    ids = array("I")
    starts = []
    for line in text.decode().split("\n"):
        if not line:
            starts.append(len(ids))
            continue
        for sentence in splitter.sentences(line):
            # dict.__getitem__ calls __missing__ for new words, so no Python loop is needed.
            ids.extend(map(ids_by_word.__getitem__, sentence))
            ids.append(END_ID)
    return TokenizedBlock(
        words="\n".join(ids_by_word.new_words()).encode(),
        ids=np.frombuffer(ids, np.uintc),
        starts=np.array(starts, np.int64),
        n_bytes=len(text),
    )


class TokenizedText:
    """The tokens of text files as provisional ids, which are stored in a temporary file.

    Args:
        path: The temporary file.
        splitter: Splits lines into sentences and words.
        skipped: Whether to skip lines that are not valid UTF-8, and a counter for them.
        vocabulary: Words whose provisional ids are their positions in this sequence: the special
            symbols, followed by the other words of the given vocabulary, if any.

    Attributes:
        n_bytes: Number of bytes of text that have been read.
    """

    def __init__(
        self, path: Path, splitter: LineSplitter, skipped: SkippedLines, vocabulary: Sequence[str]
    ) -> None:
        self._path, self._splitter, self._skipped = path, splitter, skipped
        ids = {word: word_id for word_id, word in enumerate(vocabulary)}
        self._ids_by_word = WordIds(ids, first=len(vocabulary))
        self._starts: list[NDArray[np.int64]] = []  # the starts of the documents, for each block
        self._n_ids = self._n_tokens = self.n_bytes = 0

    @property
    def words(self) -> list[str]:
        """The words in order of provisional id."""
        return list(self._ids_by_word)

    @property
    def bounds(self) -> NDArray[np.int64]:
        """The start of each document, and the end of the last one."""
        return np.concatenate([*self._starts, [self._n_ids]])

    def read(
        self,
        files: Sequence[File],
        n_workers: int,
        on_progress: OnProgress | None = None,
        total_bytes: int | None = None,
    ) -> None:
        """Tokenize files.

        Args:
            files: Text files.
            n_workers: Number of worker processes.
            on_progress: Called after each block.
            total_bytes: The total size of the text, if known. Passed to `on_progress`.

        Raises:
            DataError: A file cannot be read, or the files contain no words.
        """
        n_before = self._n_ids
        blocks = read_blocks(files, BLOCK_CHARACTERS, self._skipped)
        tokenize = partial(tokenize_block, splitter=self._splitter)
        with self._path.open("ab") as file:
            for block in parallel_map(tokenize, blocks, n_workers):
                file.write(self._provisional_ids(block).data)
                self._starts.append(block.starts + self._n_ids)
                self._n_ids += len(block.ids)
                self._n_tokens += int(np.count_nonzero(block.ids != END_ID))
                self.n_bytes += block.n_bytes
                if on_progress is not None:
                    on_progress(Progress(self._n_tokens, self.n_bytes, total_bytes))
        if self._n_ids == n_before:
            names = ", ".join(os.fspath(file) for file in files[:3])
            more = f" and {len(files) - 3:,} more" if len(files) > 3 else ""
            raise DataError(
                f"{names}{more}: no words found. Expected at least one nonempty text file."
            )

    def _provisional_ids(self, block: TokenizedBlock) -> NDArray[np.uint32]:
        words = block.words.decode().split("\n") if block.words else []
        new_ids = [*range(N_SPECIALS), *map(self._ids_by_word.__getitem__, words)]
        return np.array(new_ids, ID_TYPE)[block.ids]

    def ids(self, documents: NDArray[np.bool_]) -> Iterator[NDArray[np.uint32]]:
        """Yield the provisional ids of the selected documents, in chunks.

        Args:
            documents: Whether to include each document.
        """
        bounds = self.bounds
        for start in range(0, self._n_ids, _CHUNK):
            ids = np.fromfile(self._path, ID_TYPE, _CHUNK, offset=start * _ID_BYTES)
            first = np.searchsorted(bounds, start, side="right") - 1
            last = np.searchsorted(bounds, start + len(ids), side="left")
            clipped: NDArray[np.int64] = np.clip(bounds[first : last + 1], start, start + len(ids))
            yield ids[np.repeat(documents[first:last], np.diff(clipped))]
