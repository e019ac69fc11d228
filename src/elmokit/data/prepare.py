"""Prepare a corpus for training from text files (see `elmokit.data.layout` for the format).

The first pass (`tokenizing.py`) tokenizes blocks of text in parallel and writes provisional ids.
The second pass (`writing.py`) counts the words, sorts them by count and writes the final files.
Only the distinct words and a few blocks of text are kept in memory. All files are written to a
temporary directory, which needs up to twice as much space as the output.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.data.layout import (
    FILES,
    N_SPECIALS,
    RESERVED,
    VOCABULARY,
    Meta,
    PrepareSettings,
    is_corpus,
)
from elmokit.data.reading import LineSplitter, check_held_out_files
from elmokit.data.tokenizing import OnProgress, TokenizedText
from elmokit.data.writing import write_corpus
from elmokit.errors import ConfigError, DataError, warn
from elmokit.parallel import available_cores
from elmokit.progress import plural
from elmokit.storage.overwrite import DirectoryKind, new_directory
from elmokit.storage.regular import resolve_output
from elmokit.text.lines import SkippedLines, text_size
from elmokit.text.vocab import SPECIALS, Vocabulary

_PROVISIONAL_IDS = "work"  # name of a temporary file

File = str | os.PathLike[str]


@dataclass(frozen=True)
class Summary:
    """The result of `prepare`.

    Attributes:
        output: The output directory.
        meta: The settings and counts of the corpus.
        first_skipped: Description of the first skipped line. Empty if no line was skipped.
        n_bytes: Number of bytes of text that were read.
        seconds: Elapsed time in seconds.
        workers: Maximum number of worker processes.
    """

    output: Path
    meta: Meta
    first_skipped: str
    n_bytes: int
    seconds: float
    workers: int

    @property
    def megabytes_per_second(self) -> float:
        """Throughput in megabytes of text per second."""
        return self.n_bytes / 1e6 / self.seconds


def prepare(
    files: Sequence[File],
    output: File,
    settings: PrepareSettings | None = None,
    *,
    valid_files: Sequence[File] = (),
    skip_bad: bool = False,
    overwrite: bool = False,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
    vocabulary: Vocabulary | None = None,
) -> Summary:
    """Prepare text for training.

    In scripts, call this function under `if __name__ == "__main__":`, because worker processes
    import the script. With `workers=1`, no worker processes are started.

    Args:
        files: Text files, which can be compressed. "-" is standard input.
        output: The directory to create.
        settings: The settings that affect the result.
        valid_files: Text files to hold out for evaluation, instead of `settings.valid`. They do not
            affect the vocabulary.
        skip_bad: Skip and count lines that are not valid UTF-8, instead of raising an error.
        overwrite: Replace an existing prepared corpus.
        workers: Number of worker processes. Default: one per core.
        on_progress: Called after each block of text.
        vocabulary: The vocabulary of an existing model. Default: the words that
            `settings.min_count` and `settings.max_vocab` select.

    Raises:
        ConfigError: The settings are invalid or cannot be combined.
        DataError: The text cannot be read, or is too short.
        OutputError: The directory cannot be written, or must not be replaced.
    """
    settings = settings or PrepareSettings()
    if not files:
        raise DataError("files is empty. Expected at least one text file.")
    if settings.valid is not None and valid_files:
        raise ConfigError("valid and valid_files cannot be combined. Use one of them.")
    if vocabulary is not None:
        _check_vocabulary(vocabulary, settings)
    n_workers = available_cores() if workers is None else workers
    if n_workers < 1:
        raise ConfigError(f"Invalid value for workers: {n_workers}. Expected an integer >= 1.")
    start = time.monotonic()
    target = resolve_output(output)
    check_held_out_files(files, valid_files)
    kind = DirectoryKind("prepared corpus", FILES, is_corpus)
    with new_directory(target, kind, overwrite=overwrite) as folder:
        provisional_ids = folder / _PROVISIONAL_IDS
        splitter = LineSplitter(settings.one_sentence_per_line, settings.tokenized)
        skipped = SkippedLines(skip_bad)
        total_bytes = text_size([*files, *valid_files])
        words = SPECIALS if vocabulary is None else vocabulary.words
        text = TokenizedText(provisional_ids, splitter, skipped, words)
        text.read(files, n_workers, on_progress, total_bytes)
        n_train = len(text.bounds) - 1
        if valid_files:
            text.read(valid_files, n_workers, on_progress, total_bytes)
        held_out = np.arange(len(text.bounds) - 1) >= n_train
        if settings.valid is not None:
            held_out = choose_documents(n_train, settings.valid, settings.seed)
        meta = write_corpus(text, held_out, settings, skipped.count, folder, vocabulary)
        provisional_ids.unlink()
    _warn_about_reserved(meta)
    seconds = time.monotonic() - start
    return Summary(Path(output), meta, skipped.first, text.n_bytes, seconds, n_workers)


def read_vocabulary(path: File) -> Vocabulary:
    """Read a vocabulary.

    Args:
        path: A file with one word per line, a model directory, or a prepared corpus.

    Raises:
        DataError: The vocabulary is missing or damaged.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        path = path / VOCABULARY
        if not path.is_file():
            raise DataError(
                f"{path} does not exist. If the model has no LM head, prepare the text "
                "without a vocabulary. `elmo finetune` then creates a head."
            )
    return Vocabulary.from_file(path)


def _check_vocabulary(vocabulary: Vocabulary, settings: PrepareSettings) -> None:
    defaults = (PrepareSettings.min_count, PrepareSettings.max_vocab)
    if (settings.min_count, settings.max_vocab) != defaults:
        raise ConfigError(
            "min_count and max_vocab (--min-count, --max-vocab) cannot be combined with "
            "vocabulary (--vocab). Remove them."
        )
    vocabulary.require_specials()
    if len(vocabulary) == N_SPECIALS:
        raise DataError(
            f"The given vocabulary contains no words except {' '.join(SPECIALS)}. Use another "
            "vocabulary, or prepare the text without one."
        )
    first = vocabulary.words[:N_SPECIALS]
    if first != SPECIALS:
        raise DataError(
            f"The given vocabulary starts with {' '.join(first)}: expected {' '.join(SPECIALS)}. "
            "Move these lines to the beginning, unless a head was trained with the given order."
        )


def _warn_about_reserved(meta: Meta) -> None:
    n = sum(split.reserved_tokens for split in meta.splits.values())
    if n:
        warn(
            f"The text contains special symbols ({', '.join(RESERVED)}; "
            f"{plural(n, 'occurrence')}). They are treated as unknown words. If they mark "
            "sentence boundaries, remove them, because the boundaries are added automatically."
        )


def choose_documents(n: int, valid: int | float, seed: int) -> NDArray[np.bool_]:
    """Choose held-out documents pseudorandomly.

    The result is the same on all machines. With the same seed, a larger selection includes all
    smaller ones.

    Args:
        n: The number of documents.
        valid: The number (int) or fraction (float) of documents to hold out. For a fraction, the
            number is rounded, and at least one document is held out.
        seed: Random seed.

    Returns:
        Whether each document is held out, shape (n,).

    Raises:
        DataError: There are not enough documents.
    """
    n_chosen = max(1, round(n * valid)) if isinstance(valid, float) else valid
    if n_chosen >= n:
        raise DataError(
            f"Cannot hold out {plural(n_chosen, 'document')}: the text has only "
            f"{plural(n, 'document')}, and at least one must remain for training. Separate "
            "documents with empty lines, or specify files with --valid-file FILE (in Python: "
            "valid_files=[...])."
        )
    hashes = _splitmix64(
        _splitmix64(np.array([seed % 2**64], np.uint64)) ^ np.arange(n, dtype=np.uint64)
    )
    chosen = np.zeros(n, np.bool_)
    chosen[np.argsort(hashes, kind="stable")[:n_chosen]] = True
    return chosen


def _splitmix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash each value with splitmix64. Integer overflow is intended."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
