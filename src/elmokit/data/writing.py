"""The second pass over a corpus: types get their final ids, and the blocks are rewritten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit import __version__
from elmokit.data.arrays import save_array
from elmokit.data.blocks import RANKS, RewriteJob, rewrite_block
from elmokit.data.counting import CountedText
from elmokit.data.layout import (
    COUNTS,
    END_ID,
    GIVEN,
    ID_TYPE,
    META,
    N_SPECIALS,
    TRAIN,
    TYPES,
    UNKNOWN_ID,
    VALID,
    VOCABULARY,
    Meta,
    PrepareSettings,
    SplitCounts,
    documents_file,
    tokens_file,
)
from elmokit.data.wordtypes import write_types
from elmokit.data.workers import Workers
from elmokit.errors import DataError
from elmokit.storage.fingerprint import fingerprint_file
from elmokit.storage.manifest import write_json
from elmokit.text.vocab import Vocabulary

Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]


def write_corpus(
    text: CountedText,
    held_out: Mask,
    settings: PrepareSettings,
    folder: Path,
    workers: Workers,
    vocabulary: Vocabulary | None = None,
) -> Meta:
    """Write all files of a prepared corpus.

    Args:
        text: The counted text.
        held_out: Whether each document is held out.
        settings: What the text was prepared with.
        folder: Where the files go.
        workers: The processes.
        vocabulary: The vocabulary that `text` was counted with, if one was given.

    Returns:
        What was written.

    Raises:
        DataError: No word is frequent enough for the vocabulary.
    """
    held_counts = text.counts_of(held_out)
    types = text.counter.rank(text.counter.counts - held_counts)
    save_array(text.folder / RANKS, types.ranks)
    counts = {TRAIN: types.counts}
    if held_out.any():
        counts[VALID] = np.empty_like(held_counts)
        counts[VALID][types.ranks] = held_counts

    if vocabulary is not None:
        n_words = len(vocabulary)
    else:
        n_words = types.vocabulary_size(settings.min_count, settings.max_vocab)
    if n_words == N_SPECIALS:
        raise DataError(
            f"No word comes {settings.min_count} times or more, so the vocabulary would be empty. "
            "Give more text, or lower --min-count (in Python: min_count)."
        )
    Vocabulary(types.words[:n_words]).save(folder / VOCABULARY)
    save_array(folder / COUNTS, types.counts)
    too_long = write_types(types, folder, settings.max_characters, workers)

    settings_told = settings.to_dict()
    if vocabulary is not None:
        settings_told[GIVEN] = fingerprint_file(folder / VOCABULARY)
    n_documents = _write_documents(text, held_out, folder)
    _write_tokens(text, held_out, counts, folder, workers)
    meta = Meta(
        elmokit=__version__,
        settings=settings_told,
        n_types=len(types.words),
        n_words=n_words,
        types_digest=fingerprint_file(folder / TYPES),
        skipped_lines=text.skipped,
        splits={
            split: _describe(
                counts[split],
                n_words,
                too_long,
                documents=n_documents[split],
                digest=fingerprint_file(folder / tokens_file(split)),
            )
            for split in counts
        },
    )
    write_json(folder / META, meta.to_dict())
    return meta


def _write_documents(text: CountedText, held_out: Mask, folder: Path) -> dict[str, int]:
    """Write where documents start, and return how many each split has."""
    lengths = np.zeros(text.n_documents, np.int64)
    for block in text.blocks:
        members, parts = block.pieces()
        lengths[members] += parts
    n_documents = {}
    for split, chosen in ((TRAIN, lengths[~held_out]), (VALID, lengths[held_out])):
        if len(chosen):
            save_array(folder / documents_file(split), np.cumsum(np.append(0, chosen)))
        n_documents[split] = len(chosen)
    return n_documents


def _write_tokens(
    text: CountedText, held_out: Mask, counts: dict[str, Counts], folder: Path, workers: Workers
) -> None:
    """Write the ids of all sentences to the files of the splits."""
    size = np.dtype(ID_TYPE).itemsize
    for split, count in counts.items():
        with (folder / tokens_file(split)).open("wb") as file:
            file.truncate(int(count.sum()) * size)
    for _ in workers.map(rewrite_block, _rewrite_jobs(text, held_out, folder)):
        pass


def _rewrite_jobs(text: CountedText, held_out: Mask, folder: Path) -> Iterator[RewriteJob]:
    offsets = {TRAIN: 0, VALID: 0}
    for block in text.blocks:
        members, lengths = block.pieces()
        held = held_out[members]
        yield RewriteJob(block, held, dict(offsets), text.folder, folder)
        n_held = int(lengths[held].sum())
        offsets[VALID] += n_held
        offsets[TRAIN] += block.n_ids - n_held


def _describe(
    counts: Counts, n_words: int, too_long: Mask, *, documents: int, digest: str
) -> SplitCounts:
    """Count what a split holds.

    Args:
        counts: How often each id is in it.
        n_words: The size of the vocabulary.
        too_long: Whether each type has more bytes than a row of characters.
        documents: Its documents.
        digest: The digest of its ids.
    """
    sentences = int(counts[END_ID])
    tokens = int(counts.sum()) - sentences
    reserved = int(counts[UNKNOWN_ID])
    unknown = int(counts[n_words:].sum()) + reserved
    return SplitCounts(
        documents=documents,
        sentences=sentences,
        tokens=tokens,
        types=int(np.count_nonzero(counts[N_SPECIALS:])),
        unknown_tokens=unknown,
        unknown_rate=unknown / tokens,
        truncated_tokens=int(counts[too_long].sum()),
        reserved_tokens=reserved,
        digest=digest,
    )
