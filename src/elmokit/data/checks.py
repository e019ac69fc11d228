"""Whether the files of a prepared corpus belong together.

A model learns noise from ids that mean other words than its vocabulary says, without an error.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

import numpy as np

from elmokit.data.layout import (
    CHARS,
    COUNTS,
    END_ID,
    N_SPECIALS,
    OFFSETS,
    TRAIN,
    TYPES,
    VOCABULARY,
    again,
    documents_file,
    tokens_file,
)
from elmokit.errors import DataError
from elmokit.model.chars import char_ids_table
from elmokit.storage.fingerprint import fingerprint_file
from elmokit.text.vocab import SPECIALS

if TYPE_CHECKING:
    from elmokit.data.corpus import Corpus

_CHUNK = 1 << 22  # ids looked at in one go
_SPELLED = 256  # words whose characters are compared


def check_sizes(corpus: Corpus) -> None:
    """Raise a DataError for a file that is missing or has not the size that meta.json says."""
    if not N_SPECIALS < corpus.n_words <= corpus.n_types:
        raise _fault(
            corpus, f"meta.json says {corpus.n_words:,} words and {corpus.n_types:,} types"
        )
    _ = corpus.counts, corpus.chars, corpus.spellings
    for split in corpus.splits:
        corpus.tokens(split)
        corpus.documents(split)


def check_types(corpus: Corpus) -> None:
    """Raise a DataError for words, counts or spellings that are not those of the ids."""
    _check_vocabulary(corpus)
    if fingerprint_file(corpus.path / TYPES) != corpus.meta.types_digest:
        raise _fault(corpus, f"{TYPES} was changed")
    ends = corpus.offsets[1:] - 1
    if corpus.offsets[0] != 0 or not np.array_equal(
        np.flatnonzero(corpus.spellings == ord("\n")), ends
    ):
        raise _fault(corpus, f"{OFFSETS} does not say where the lines of {TYPES} start")
    _check_counts(corpus)
    some = np.linspace(0, corpus.n_types - 1, min(corpus.n_types, _SPELLED)).astype(np.int64)
    spelled = char_ids_table(corpus.words(some), corpus.max_characters)
    if not np.array_equal(corpus.chars[some], spelled):
        raise _fault(corpus, f"{CHARS} does not spell the words of {TYPES}")


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


def _check_vocabulary(corpus: Corpus) -> None:
    try:
        found = corpus.vocabulary.words
    except DataError as error:
        raise _fault(corpus, str(error).rstrip(".")) from None
    if found[:N_SPECIALS] != SPECIALS:
        raise _fault(
            corpus,
            f"{VOCABULARY} should start with {' '.join(SPECIALS)}, "
            f"found {' '.join(found[:N_SPECIALS])}",
        )
    # As bytes first: to make a list of words takes longer than to compare them.
    raw = (corpus.path / VOCABULARY).read_bytes()
    if raw == corpus.spellings[: corpus.offsets[corpus.n_words]].tobytes():
        return
    expected = corpus.words(np.arange(corpus.n_words))
    for number, (word, right) in enumerate(zip_longest(found, expected), start=1):
        if word != right:
            found_word, right_word = (repr(w) if w else "missing" for w in (word, right))
            raise _fault(
                corpus,
                f"line {number} of {VOCABULARY} is {found_word}, and in {TYPES} {right_word}",
            )


def _check_counts(corpus: Corpus) -> None:
    counts, train = corpus.counts, corpus.meta.splits[TRAIN]
    first = corpus.n_words if corpus.meta.has_given_vocabulary else N_SPECIALS
    rising = np.flatnonzero(np.diff(counts[first:]) > 0)
    if len(rising):
        wrong = first + 1 + int(rising[0])
        raise _fault(corpus, f"{COUNTS} is not sorted: id {wrong} has more than the one before it")
    if (counts < 0).any() or counts.sum() != train.tokens + train.sentences:
        raise _fault(
            corpus,
            f"{COUNTS} counts {counts.sum():,} ids, and {tokens_file(TRAIN)} has "
            f"{train.tokens + train.sentences:,}",
        )


def _fault(corpus: Corpus, what: str) -> DataError:
    return DataError(
        f"The files in {corpus.path} do not belong together: {what}. {again(corpus.path)}"
    )
