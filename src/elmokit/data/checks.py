"""Check that the files of a prepared corpus belong together.

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
    again,
    documents_file,
    tokens_file,
)
from elmokit.errors import DataError
from elmokit.model.chars import N_CHARACTERS
from elmokit.storage.fingerprint import fingerprint_file
from elmokit.text.vocab import SPECIALS

if TYPE_CHECKING:
    from elmokit.data.corpus import Corpus

_CHUNK = 1 << 22  # ids looked at in one go


def check_sizes(corpus: Corpus) -> None:
    """Raise a DataError for a file that is missing or has not the size that meta.json says."""
    _ = corpus.counts, corpus.chars, corpus.spellings
    for split in corpus.splits:
        corpus.tokens(split)
        corpus.documents(split)


def check_files(corpus: Corpus) -> None:
    """Raise a DataError for files that were changed, or that spell words with unknown ids."""
    small = (VOCABULARY, TYPES, OFFSETS, COUNTS, CHARS, *map(documents_file, corpus.splits))
    for name in small:  # the ids themselves are looked at one by one
        try:
            found = fingerprint_file(corpus.path / name)
        except OSError as error:
            raise _fault(corpus, f"{name} cannot be read ({error.strerror})") from None
        if found != corpus.meta.digests.get(name):
            raise _fault(corpus, f"{name} was changed")
    if corpus.vocabulary.words[:N_SPECIALS] != SPECIALS or corpus.n_words != len(corpus.vocabulary):
        raise _fault(corpus, f"{VOCABULARY} should have {' '.join(SPECIALS)} and the words")
    if corpus.chars.max() >= N_CHARACTERS:
        raise _fault(corpus, f"{CHARS} holds other than character ids")


def check_ids(corpus: Corpus, split: str) -> None:
    """Raise a DataError for ids that no word has, or documents that are not where they should."""
    ids, starts = corpus.tokens(split), corpus.documents(split)
    name = tokens_file(split)
    n_ends = 0
    for start in range(0, len(ids), _CHUNK):
        chunk = np.asarray(ids[start : start + _CHUNK])
        if chunk.max() >= corpus.n_types or chunk.min() < END_ID:
            wrong = int(chunk[(chunk >= corpus.n_types) | (chunk < END_ID)][0])
            raise _fault(
                corpus, f"{name} holds the id {wrong:,}, expected {END_ID} to {corpus.n_types - 1}"
            )
        n_ends += int(np.count_nonzero(chunk == END_ID))
    sentences = corpus.meta.splits[split].sentences
    if n_ends != sentences:
        raise _fault(corpus, f"{name} holds {n_ends:,} sentences, expected {sentences:,}")
    if starts[0] != 0 or starts[-1] != len(ids) or (np.diff(starts) < 2).any():
        raise _fault(corpus, f"{documents_file(split)} does not cut {name} into documents")
    if (ids[starts[1:] - 1] != END_ID).any():
        raise _fault(corpus, f"a document of {documents_file(split)} ends within a sentence")


def _fault(corpus: Corpus, what: str) -> DataError:
    return DataError(
        f"The files in {corpus.path} do not belong together: {what}. {again(corpus.path)}"
    )
