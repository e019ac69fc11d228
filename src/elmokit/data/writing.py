"""The second pass of `elmo prepare`, which assigns the final ids and writes all files."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit import __version__
from elmokit.data import layout
from elmokit.data.arrays import save_array, save_rows
from elmokit.data.counting import CountedText, RankedTypes
from elmokit.data.layout import Meta, PrepareSettings, SplitCounts
from elmokit.errors import DataError
from elmokit.model.chars import char_ids_table, is_truncated
from elmokit.storage.fingerprint import fingerprint_file
from elmokit.storage.manifest import write_json
from elmokit.text.vocab import Vocabulary

Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]

_CHUNK = 1 << 15  # number of types that are encoded at once


def write_corpus(
    text: CountedText,
    held_out: Mask,
    settings: PrepareSettings,
    folder: Path,
    vocabulary: Vocabulary | None = None,
) -> Meta:
    """Write all files of a prepared corpus.

    Args:
        text: The counted text.
        held_out: Whether each document is held out.
        settings: The settings.
        folder: The output directory.
        vocabulary: The given vocabulary, if there is one.

    Returns:
        The contents of meta.json.

    Raises:
        DataError: No word is frequent enough for the vocabulary.
    """
    valid_counts = np.zeros(len(text.counter), np.int64)
    if held_out.any():
        for ids, is_held_out in text.chunks(held_out):
            valid_counts += np.bincount(ids[is_held_out], minlength=len(valid_counts))
    types = text.counter.rank(text.counter.counts - valid_counts)
    counts = {layout.TRAIN: types.counts}
    if held_out.any():
        counts[layout.VALID] = np.empty_like(valid_counts)
        counts[layout.VALID][types.ranks] = valid_counts

    if vocabulary is not None:
        n_words = len(vocabulary)
    else:
        n_words = types.vocabulary_size(settings.min_count, settings.max_vocab)
    if n_words == layout.N_SPECIALS:
        raise DataError(
            f"No word occurs at least {settings.min_count} times, so the vocabulary would be "
            "empty. Use more text, or a lower --min-count (in Python: min_count)."
        )
    Vocabulary(types.words[:n_words]).save(folder / layout.VOCABULARY)
    save_array(folder / layout.COUNTS, types.counts)
    truncated = _write_types(types, folder, settings.max_characters)

    _write_tokens(text, held_out, types.ranks, folder)
    n_documents = {layout.TRAIN: int((~held_out).sum()), layout.VALID: int(held_out.sum())}
    meta = Meta(
        elmokit=__version__,
        settings=settings,
        n_types=len(types.words),
        n_words=n_words,
        skipped_lines=text.skipped.count,
        splits={
            split: _describe(count, n_words, truncated, n_documents[split])
            for split, count in counts.items()
        },
        digests={
            name: fingerprint_file(folder / name)
            for name in layout.FILES
            if (folder / name).is_file()
        },
    )
    write_json(folder / layout.META, meta.to_dict())
    return meta


def _write_types(types: RankedTypes, folder: Path, max_characters: int) -> NDArray[np.bool_]:
    """Write the types and their character ids.

    Returns:
        Whether each type is truncated, because it is longer than `max_characters`.
    """
    n = len(types.words)
    chunks = [types.words[start : start + _CHUNK] for start in range(0, n, _CHUNK)]
    lengths = np.zeros(n + 1, np.int64)
    with (folder / layout.TYPES).open("wb") as file:
        for number, word in enumerate(types.words, start=1):
            lengths[number] = file.write(f"{word}\n".encode())
    save_array(folder / layout.OFFSETS, np.cumsum(lengths))
    encoded = (char_ids_table(words, max_characters) for words in chunks)
    save_rows(folder / layout.CHARS, (n, max_characters), np.dtype("<u2"), encoded)
    return np.array([is_truncated(word, max_characters) for word in types.words])


def _write_tokens(
    text: CountedText, held_out: Mask, ranks: NDArray[np.uint32], folder: Path
) -> None:
    """Write the ids and document boundaries of each split."""
    with ExitStack() as stack:
        splits = {layout.TRAIN: False} | ({layout.VALID: True} if held_out.any() else {})
        files = [
            (stack.enter_context((folder / layout.tokens_file(split)).open("wb")), is_valid_split)
            for split, is_valid_split in splits.items()
        ]
        for ids, is_held_out in text.chunks(held_out):
            final_ids = ranks[ids].astype(layout.ID_TYPE, copy=False)
            for file, is_valid_split in files:
                file.write(final_ids[is_held_out == is_valid_split].data)
    lengths = np.diff(text.bounds)
    for split, is_valid_split in splits.items():
        bounds = np.cumsum(np.append(0, lengths[held_out == is_valid_split]))
        save_array(folder / layout.documents_file(split), bounds)


def _describe(counts: Counts, n_words: int, truncated: Mask, documents: int) -> SplitCounts:
    """Return the counts of a split.

    Args:
        counts: Number of occurrences of each id in the split.
        n_words: The size of the vocabulary.
        truncated: Whether each type is truncated.
        documents: Number of documents in the split.
    """
    sentences = int(counts[layout.END_ID])
    tokens = int(counts.sum()) - sentences
    reserved = int(counts[layout.UNKNOWN_ID])
    unknown = int(counts[n_words:].sum()) + reserved
    return SplitCounts(
        documents=documents,
        sentences=sentences,
        tokens=tokens,
        types=int(np.count_nonzero(counts[layout.N_SPECIALS :])),
        unknown_tokens=unknown,
        unknown_rate=unknown / tokens,
        truncated_tokens=int(counts[truncated].sum()),
        reserved_tokens=reserved,
    )
