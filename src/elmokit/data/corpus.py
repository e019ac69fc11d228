"""Open and validate a prepared corpus as memory-mapped arrays.

    corpus = Corpus.open("data/")
    ids = corpus.tokens("train")            # uint32, all sentences, each followed by 1 (</S>)
    starts = corpus.documents("train")      # document i is ids[starts[i] : starts[i + 1]]
    corpus.chars[ids[:20]]                  # the character ids of 20 tokens, shape (20, 50)
    corpus.words(ids[:20])                  # the tokens as strings

The files are described in `elmokit.data.layout`. They are validated when a corpus is opened,
because training with wrong ids would not raise an error, but would produce a useless model.
"""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from elmokit.data import layout
from elmokit.data.arrays import map_array, map_raw_array
from elmokit.data.layout import TRAIN, Meta, SplitCounts
from elmokit.errors import DataError
from elmokit.model.chars import N_CHARACTERS
from elmokit.progress import plural
from elmokit.storage.atomic import restore_directory
from elmokit.storage.fingerprint import fingerprint_file, fingerprint_texts
from elmokit.storage.regular import check_regular_files
from elmokit.text.vocab import SPECIALS, Vocabulary

_CHUNK = 1 << 22  # number of ids to check at once


class Corpus:
    """A prepared corpus. Use `Corpus.open`.

    Attributes:
        path: The directory.
        meta: The settings and counts.
    """

    def __init__(self, path: Path, meta: Meta) -> None:
        self.path = path
        self.meta = meta

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Corpus:
        """Open a prepared corpus. Checking its ids takes about a second per billion ids.

        Args:
            path: The output directory of `elmo prepare`.

        Raises:
            DataError: `path` is not a prepared corpus, or files are missing, damaged or
                inconsistent.
        """
        folder = Path(path)
        if folder.is_file():
            raise DataError(
                f"{folder} is a file: expected a directory written by `elmo prepare`. First "
                f"prepare the text: elmo prepare {folder} -o DATA (to fine-tune a model that has "
                "an LM head, add --vocab MODEL)."
            )
        restore_directory(folder)
        check_regular_files(folder, DataError)
        corpus = cls(folder, Meta.from_file(folder / layout.META))
        corpus._check_sizes()
        corpus._check_files()
        for split in corpus.splits:
            corpus._check_ids(split)
        return corpus

    @property
    def splits(self) -> tuple[str, ...]:
        """The names of the splits: "train" and possibly "valid"."""
        return tuple(self.meta.splits)

    @property
    def n_types(self) -> int:
        """The number of types, including the special symbols."""
        return self.meta.n_types

    @property
    def n_words(self) -> int:
        """The size V of the vocabulary. Targets with an id of V or higher become <UNK>."""
        return self.meta.n_words

    @property
    def max_characters(self) -> int:
        """Number of character ids per word."""
        return self.meta.settings.max_characters

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the text and the settings."""
        return fingerprint_texts([json.dumps(self.meta.to_dict(), sort_keys=True)])

    def tokens(self, split: str = TRAIN) -> NDArray[np.uint32]:
        """Return the ids of a split.

        Shape:
            (tokens + sentences,)
        """
        counts = self._split_counts(split)
        path = self.path / layout.tokens_file(split)
        return map_raw_array(path, layout.ID_TYPE, counts.tokens + counts.sentences)

    def documents(self, split: str = TRAIN) -> NDArray[np.int64]:
        """Return the start of each document of a split, and the end of the split.

        Shape:
            (documents + 1,)
        """
        shape = (self._split_counts(split).documents + 1,)
        return map_array(self.path / layout.documents_file(split), "<i8", shape)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The vocabulary, which contains V words."""
        return Vocabulary.from_file(self.path / layout.VOCABULARY)

    @cached_property
    def counts(self) -> NDArray[np.int64]:
        """Number of occurrences of each id in the training split; 0 for <S>, which is not stored.

        Shape:
            (n_types,)
        """
        return map_array(self.path / layout.COUNTS, "<i8", (self.n_types,))

    @cached_property
    def target_counts(self) -> NDArray[np.int64]:
        """Number of times each word of the vocabulary is a target in the training split.

        Unlike in `counts`, all words that are not in the vocabulary are counted as <UNK>, and <S>
        has the same count as </S>, because the backward LM predicts <S> once per sentence.

        Shape:
            (V,)
        """
        counts = np.array(self.counts[: self.n_words])
        counts[layout.BEGIN_ID] = counts[layout.END_ID]
        counts[layout.UNKNOWN_ID] += self.counts[self.n_words :].sum()
        return counts

    @cached_property
    def chars(self) -> NDArray[np.uint16]:
        """The character ids of each type; see `elmokit.model.chars`.

        Shape:
            (n_types, C)
        """
        return map_array(self.path / layout.CHARS, "<u2", (self.n_types, self.max_characters))

    @cached_property
    def offsets(self) -> NDArray[np.int64]:
        """The start of each word in `spellings`, and the end of the last one.

        Shape:
            (n_types + 1,)
        """
        return map_array(self.path / layout.OFFSETS, "<i8", (self.n_types + 1,))

    @cached_property
    def spellings(self) -> NDArray[np.uint8]:
        """The bytes of all words, one word per line.

        Shape:
            (offsets[-1],)
        """
        return map_raw_array(self.path / layout.TYPES, "u1", int(self.offsets[-1]))

    def words(self, ids: ArrayLike) -> list[str]:
        """Return the words with the given ids, including words that are not in the vocabulary."""
        index = np.asarray(ids, dtype=np.int64)
        starts, ends = self.offsets[index], self.offsets[index + 1] - 1
        return [
            self.spellings[start:end].tobytes().decode("utf-8")
            for start, end in zip(starts, ends, strict=True)
        ]

    def __repr__(self) -> str:
        tokens = ", ".join(f"{name} {split.tokens:,}" for name, split in self.meta.splits.items())
        return f"Corpus({str(self.path)!r}, tokens: {tokens}, {self.n_words:,} words)"

    def _split_counts(self, split: str) -> SplitCounts:
        if split not in self.meta.splits:
            raise DataError(
                f"{self.path} has no split '{split}': expected {' or '.join(self.splits)}. To hold "
                "out text, prepare the corpus with --valid N or --valid-file FILE."
            )
        return self.meta.splits[split]

    def _check_sizes(self) -> None:
        """Raise a DataError if a file is missing or its size does not match meta.json."""
        _ = self.counts, self.chars, self.spellings  # opening a file checks its size
        map_raw_array(self.path / layout.VOCABULARY, "u1", int(self.offsets[self.n_words]))
        for split in self.splits:
            self.tokens(split)
            self.documents(split)

    def _check_files(self) -> None:
        """Raise a DataError if a file has changed, or the vocabulary or character ids are invalid.

        The files of token ids are large, so `_check_ids` checks them instead.
        """
        names = layout.VOCABULARY, layout.TYPES, layout.OFFSETS, layout.COUNTS, layout.CHARS
        for name in (*names, *map(layout.documents_file, self.splits)):
            try:
                fingerprint = fingerprint_file(self.path / name)
            except OSError as error:
                raise self._damage_error(f"{name} cannot be read ({error.strerror})") from None
            if fingerprint != self.meta.digests.get(name):
                raise self._damage_error(f"{name} was changed after preparation")
        words = self.vocabulary.words
        if words[: len(SPECIALS)] != SPECIALS or len(words) != self.n_words:
            expected = f"begin with {' '.join(SPECIALS)} and contain {self.n_words:,} words"
            raise self._damage_error(f"{layout.VOCABULARY} should {expected}")
        if self.chars.max() >= N_CHARACTERS:
            raise self._damage_error(f"{layout.CHARS} contains invalid character ids")

    def _check_ids(self, split: str) -> None:
        """Raise a DataError if ids or document boundaries are invalid."""
        ids, starts = self.tokens(split), self.documents(split)
        name = layout.tokens_file(split)
        n_ends = 0
        for start in range(0, len(ids), _CHUNK):
            chunk = np.asarray(ids[start : start + _CHUNK])
            if chunk.max() >= self.n_types or chunk.min() < layout.END_ID:
                invalid = int(chunk[(chunk >= self.n_types) | (chunk < layout.END_ID)][0])
                expected = f"{layout.END_ID} to {self.n_types - 1}"
                raise self._damage_error(f"{name} contains the id {invalid:,}, expected {expected}")
            n_ends += int(np.count_nonzero(chunk == layout.END_ID))
        sentences = self.meta.splits[split].sentences
        if n_ends != sentences:
            raise self._damage_error(
                f"{name} contains {plural(n_ends, 'sentence')}, expected {sentences:,}"
            )
        documents = layout.documents_file(split)
        if starts[0] != 0 or starts[-1] != len(ids) or (np.diff(starts) < 2).any():
            raise self._damage_error(f"{documents} does not match {name}")
        if (ids[starts[1:] - 1] != layout.END_ID).any():
            raise self._damage_error(f"a document in {documents} ends within a sentence")

    def _damage_error(self, problem: str) -> DataError:
        advice = layout.prepare_again_hint(self.path)
        return DataError(f"The prepared corpus {self.path} is damaged: {problem}. {advice}")
