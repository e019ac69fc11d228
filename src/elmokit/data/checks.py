"""Check that the files of a prepared corpus match.

If ids did not match the vocabulary, a model would learn noise without any error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from elmokit.data.layout import (
    CHARS,
    COUNTS,
    END_ID,
    N_SPECIALS,
    OFFSETS,
    TYPES,
    VOCABULARY,
    documents_file,
    how_to_prepare_again,
    tokens_file,
)
from elmokit.errors import DataError
from elmokit.model.chars import N_CHARACTERS
from elmokit.storage.fingerprint import fingerprint_file
from elmokit.text.vocab import SPECIALS

if TYPE_CHECKING:
    from elmokit.data.corpus import Corpus

_CHUNK = 1 << 22  # ids that are checked at once


def check_sizes(corpus: Corpus) -> None:
    """Raise a DataError for a file that is missing or does not have the size in meta.json."""
    _ = corpus.counts, corpus.chars, corpus.spellings
    for split in corpus.splits:
        corpus.tokens(split)
        corpus.documents(split)


def check_files(corpus: Corpus) -> None:
    """Raise a DataError for files that were changed, or that contain invalid character ids."""
    small = (VOCABULARY, TYPES, OFFSETS, COUNTS, CHARS, *map(documents_file, corpus.splits))
    for name in small:  # `check_ids` checks the ids themselves
        try:
            fingerprint = fingerprint_file(corpus.path / name)
        except OSError as error:
            raise _error(corpus, f"{name} cannot be read ({error.strerror})") from None
        if fingerprint != corpus.meta.digests.get(name):
            raise _error(corpus, f"{name} was changed")
    if corpus.vocabulary.words[:N_SPECIALS] != SPECIALS or corpus.n_words != len(corpus.vocabulary):
        raise _error(corpus, f"{VOCABULARY} should contain {' '.join(SPECIALS)} and the words")
    if corpus.chars.max() >= N_CHARACTERS:
        raise _error(corpus, f"{CHARS} contains invalid character ids")


def check_ids(corpus: Corpus, split: str) -> None:
    """Raise a DataError for invalid ids, or for wrong document boundaries."""
    ids, starts = corpus.tokens(split), corpus.documents(split)
    name = tokens_file(split)
    n_ends = 0
    for start in range(0, len(ids), _CHUNK):
        chunk = np.asarray(ids[start : start + _CHUNK])
        if chunk.max() >= corpus.n_types or chunk.min() < END_ID:
            wrong = int(chunk[(chunk >= corpus.n_types) | (chunk < END_ID)][0])
            raise _error(
                corpus,
                f"{name} contains the id {wrong:,}, expected {END_ID} to {corpus.n_types - 1}",
            )
        n_ends += int(np.count_nonzero(chunk == END_ID))
    sentences = corpus.meta.splits[split].sentences
    if n_ends != sentences:
        raise _error(corpus, f"{name} contains {n_ends:,} sentences, expected {sentences:,}")
    if starts[0] != 0 or starts[-1] != len(ids) or (np.diff(starts) < 2).any():
        raise _error(corpus, f"{documents_file(split)} does not match {name}")
    if (ids[starts[1:] - 1] != END_ID).any():
        raise _error(corpus, f"a document in {documents_file(split)} ends within a sentence")


def _error(corpus: Corpus, what: str) -> DataError:
    return DataError(
        f"The files in {corpus.path} do not match: {what}. {how_to_prepare_again(corpus.path)}"
    )
