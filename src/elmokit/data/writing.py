"""The second pass of `elmo prepare`, which assigns the final ids and writes all files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit import __version__
from elmokit.data import layout
from elmokit.data.arrays import save_array, save_rows
from elmokit.data.layout import Meta, PrepareSettings, SplitCounts
from elmokit.data.tokenizing import TokenizedText
from elmokit.errors import DataError
from elmokit.model.chars import char_ids_table, is_truncated
from elmokit.progress import plural
from elmokit.storage.fingerprint import fingerprint_file
from elmokit.storage.manifest import write_json
from elmokit.text.vocab import Vocabulary

Counts = NDArray[np.int64]
Mask = NDArray[np.bool_]

_CHUNK = 1 << 15  # number of types to encode at once


def write_corpus(
    text: TokenizedText,
    held_out: Mask,
    settings: PrepareSettings,
    skipped_lines: int,
    folder: Path,
    vocabulary: Vocabulary | None = None,
) -> Meta:
    """Write all files of a prepared corpus.

    Args:
        text: The tokenized text.
        held_out: Whether each document is held out.
        settings: The settings.
        skipped_lines: Number of lines that were not valid UTF-8.
        folder: The output directory.
        vocabulary: The given vocabulary, if any.

    Returns:
        The contents of meta.json.

    Raises:
        DataError: No word is frequent enough for the vocabulary.
    """
    splits = {layout.TRAIN: ~held_out} | ({layout.VALID: held_out} if held_out.any() else {})
    words = text.words
    counts = {split: _count(text, documents, len(words)) for split, documents in splits.items()}
    n_fixed = layout.N_SPECIALS if vocabulary is None else len(vocabulary)
    order = _sort_types(words, counts[layout.TRAIN], n_fixed)
    words = [words[provisional_id] for provisional_id in order]
    counts = {split: values[order] for split, values in counts.items()}

    n_words = n_fixed
    if vocabulary is None:
        frequent = counts[layout.TRAIN][n_fixed:] >= settings.min_count
        n_words = min(n_fixed + int(frequent.sum()), settings.max_vocab or len(words))
    if n_words == layout.N_SPECIALS:
        raise DataError(
            f"No word occurs at least {plural(settings.min_count, 'time')}, so the vocabulary "
            "would be empty. Use more text or a lower --min-count (in Python: min_count)."
        )
    Vocabulary(words[:n_words]).save(folder / layout.VOCABULARY)
    save_array(folder / layout.COUNTS, counts[layout.TRAIN])
    _write_types(words, folder, settings.max_characters)
    is_type_truncated = np.array([is_truncated(word, settings.max_characters) for word in words])

    final_ids = np.empty(len(words), layout.ID_TYPE)
    final_ids[order] = np.arange(len(words))
    lengths = np.diff(text.bounds)
    for split, documents in splits.items():
        with (folder / layout.tokens_file(split)).open("wb") as file:
            for ids in text.ids(documents):
                file.write(final_ids[ids].data)
        bounds = np.cumsum(np.append(0, lengths[documents]))
        save_array(folder / layout.documents_file(split), bounds)
    meta = Meta(
        elmokit=__version__,
        settings=settings,
        n_types=len(words),
        n_words=n_words,
        skipped_lines=skipped_lines,
        splits={
            split: _split_counts(counts[split], n_words, is_type_truncated, int(documents.sum()))
            for split, documents in splits.items()
        },
        digests={
            name: fingerprint_file(folder / name)
            for name in layout.FILES
            if (folder / name).is_file()
        },
    )
    write_json(folder / layout.META, meta.to_dict())
    return meta


def _count(text: TokenizedText, documents: Mask, n_types: int) -> Counts:
    """Return the number of occurrences of each provisional id in the selected documents."""
    counts = np.zeros(n_types, np.int64)
    for ids in text.ids(documents):
        counts += np.bincount(ids, minlength=n_types)
    return counts


def _sort_types(words: Sequence[str], counts: Counts, n_fixed: int) -> list[int]:
    """Return the provisional ids in the order of the final ids.

    Words are sorted by decreasing count, then alphabetically. The first `n_fixed` words keep their
    ids.
    """
    order = sorted(range(n_fixed, len(words)), key=words.__getitem__)
    # Sorting is stable, so words with equal counts stay in alphabetical order.
    order.sort(key=counts.tolist().__getitem__, reverse=True)
    return [*range(n_fixed), *order]


def _write_types(words: Sequence[str], folder: Path, max_characters: int) -> None:
    """Write the types and their character ids."""
    with (folder / layout.TYPES).open("wb") as file:
        lengths = [file.write(f"{word}\n".encode()) for word in words]
    save_array(folder / layout.OFFSETS, np.cumsum([0, *lengths], dtype=np.int64))
    chunks = (words[start : start + _CHUNK] for start in range(0, len(words), _CHUNK))
    char_ids = (char_ids_table(chunk, max_characters) for chunk in chunks)
    save_rows(folder / layout.CHARS, (len(words), max_characters), np.dtype("<u2"), char_ids)


def _split_counts(counts: Counts, n_words: int, truncated: Mask, n_documents: int) -> SplitCounts:
    """Return the counts of a split.

    Args:
        counts: Number of occurrences of each id in the split.
        n_words: The size of the vocabulary.
        truncated: Whether each type is truncated.
        n_documents: Number of documents in the split.
    """
    sentences = int(counts[layout.END_ID])
    tokens = int(counts.sum()) - sentences
    reserved = int(counts[layout.UNKNOWN_ID])
    unknown = int(counts[n_words:].sum()) + reserved
    return SplitCounts(
        documents=n_documents,
        sentences=sentences,
        tokens=tokens,
        types=int(np.count_nonzero(counts[layout.N_SPECIALS :])),
        unknown_tokens=unknown,
        unknown_rate=unknown / tokens,
        truncated_tokens=int(counts[truncated].sum()),
        reserved_tokens=reserved,
    )
