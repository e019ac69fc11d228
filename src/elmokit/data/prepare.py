"""Prepare a corpus from text files (see `elmokit.data.layout` for its format).

Memory holds one copy of the word types and a few blocks of text, regardless of the length of the
text. First, blocks are tokenized in parallel and counted; then types are ranked and encoded as
character ids; then ids are replaced by the final ones. The files are written to a temporary
directory, which is renamed at the end. Until then, the output needs twice its size on disk.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from elmokit.data.counting import CountedText, OnProgress
from elmokit.data.layout import (
    FILES,
    N_SPECIALS,
    RESERVED,
    VOCABULARY,
    Meta,
    PrepareSettings,
    is_corpus,
)
from elmokit.data.reading import LineSplitter, check_split
from elmokit.data.writing import write_corpus
from elmokit.errors import ConfigError, DataError, warn
from elmokit.parallel import available_cores
from elmokit.progress import plural
from elmokit.storage.overwrite import DirectoryKind, new_directory
from elmokit.storage.regular import resolve_output
from elmokit.text.lines import SkippedLines, text_size
from elmokit.text.vocab import SPECIALS, Vocabulary

_WORK = "work"

File = str | os.PathLike[str]


@dataclass(frozen=True)
class Summary:
    """The result of `prepare`.

    Attributes:
        output: The directory.
        meta: Its settings and counts.
        first_skipped: The problem with the first skipped line, if there is one.
        n_bytes: Bytes of text read.
        seconds: Elapsed time.
        workers: Maximum number of processes.
    """

    output: Path
    meta: Meta
    first_skipped: str
    n_bytes: int
    seconds: float
    workers: int

    @property
    def megabytes_per_second(self) -> float:
        """Throughput."""
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

    In a script, call it under `if __name__ == "__main__":`, because worker processes import the
    script; with `workers=1` there are none.

    Args:
        files: Text files, optionally compressed; "-" is standard input.
        output: The directory to create.
        settings: The settings that determine the result.
        valid_files: Text to hold out for evaluation, instead of `settings.valid`. Its words do not
            count for the vocabulary.
        skip_bad: Skip and count lines that are not UTF-8 instead of raising.
        overwrite: Replace an existing prepared corpus.
        workers: Number of processes. Default: one per core.
        on_progress: Called after each block of text.
        vocabulary: The words of an existing model's head, whose ids are used. No words are chosen
            by count; all other words are <UNK> as targets.

    Raises:
        ConfigError: The settings contradict each other.
        DataError: The text cannot be read, or is too short.
        OutputError: The directory cannot be written, or must not be replaced.
    """
    settings = settings or PrepareSettings()
    if settings.valid is not None and valid_files:
        raise ConfigError("Expected valid or valid_files, not both.")
    if vocabulary is not None:
        _check_vocabulary(vocabulary, settings)
    n_workers = available_cores() if workers is None else workers
    if n_workers < 1:
        raise ConfigError(f"Invalid value for workers: {n_workers}. Expected an integer >= 1.")
    start = time.monotonic()
    target = resolve_output(output)
    check_split(files, valid_files)
    kind = DirectoryKind("prepared corpus", FILES, is_corpus)
    with new_directory(target, kind, overwrite=overwrite) as folder:
        work = folder / _WORK
        text = CountedText(
            work,
            LineSplitter(settings.one_sentence_per_line, settings.tokenized),
            skipped=SkippedLines(skip_bad),
            total_bytes=text_size([*files, *valid_files]),
            on_progress=on_progress,
            vocabulary=() if vocabulary is None else vocabulary.words[N_SPECIALS:],
        )
        text.read(files, n_workers)
        n_train = len(text.bounds) - 1
        if valid_files:
            text.read(valid_files, n_workers)
        held_out = np.arange(len(text.bounds) - 1) >= n_train
        if settings.valid is not None:
            held_out = choose_documents(n_train, settings.valid, settings.seed)
        meta = write_corpus(text, held_out, settings, folder, vocabulary)
        work.unlink()
    _warn_about_reserved(meta)
    seconds = time.monotonic() - start
    return Summary(Path(output), meta, text.skipped.first, text.n_bytes, seconds, n_workers)


def read_vocabulary(path: File) -> Vocabulary:
    """Read the vocabulary to prepare text with.

    Args:
        path: A file with one word per line, or a directory with one: a model, a prepared corpus.

    Raises:
        DataError: It is missing or damaged.
    """
    path = Path(path).expanduser()
    if path.is_dir():
        path = path / VOCABULARY
        if not path.is_file():
            raise DataError(
                f"{path} does not exist. For a model without a language-model head, prepare the "
                "text without a vocabulary; `elmo finetune` then creates a head."
            )
    return Vocabulary.from_file(path)


def _check_vocabulary(vocabulary: Vocabulary, settings: PrepareSettings) -> None:
    chosen = (settings.min_count, settings.max_vocab)
    if chosen != (PrepareSettings.min_count, PrepareSettings.max_vocab):
        raise ConfigError(
            "min_count and max_vocab (--min-count, --max-vocab) cannot be used with a given "
            "vocabulary."
        )
    vocabulary.require_specials()
    if len(vocabulary) == N_SPECIALS:
        raise DataError(f"The given vocabulary contains no words except {' '.join(SPECIALS)}.")
    first = vocabulary.words[:N_SPECIALS]
    if first != SPECIALS:
        raise DataError(
            f"The given vocabulary should start with the lines {' '.join(SPECIALS)}, found "
            f"{' '.join(first)}. Move these three to the beginning, unless a head was trained with "
            "another order."
        )


def _warn_about_reserved(meta: Meta) -> None:
    n = sum(split.reserved_tokens for split in meta.splits.values())
    if n:
        warn(
            f"The text contains {n:,} words that equal a special symbol ({', '.join(RESERVED)}). "
            "They are stored as <UNK>. If they mark sentences, remove them: sentence boundaries "
            "are added automatically."
        )


def choose_documents(n: int, valid: int | float, seed: int) -> NDArray[np.bool_]:
    """Choose the documents with the smallest hashes of seed and position.

    The choice is the same on every machine, and a larger choice includes a smaller one.

    Args:
        n: The number of documents.
        valid: How many to choose; a float is a fraction of `n`, rounded, and at least one.
        seed: The seed of the hash.

    Returns:
        Whether each document is chosen, shape (n,).

    Raises:
        DataError: There are not enough documents.
    """
    n_chosen = max(1, round(n * valid)) if isinstance(valid, float) else valid
    if n_chosen >= n:
        raise DataError(
            f"Cannot hold out {n_chosen:,} of {plural(n, 'document')}: no documents are left for "
            "training. Documents are separated by empty lines and ends of files. For text without "
            "empty lines, use separate files: --valid-files FILE (in Python: valid_files=[...])."
        )
    hashes = _mix(_mix(np.array([seed % 2**64], np.uint64)) ^ np.arange(n, dtype=np.uint64))
    chosen = np.zeros(n, np.bool_)
    chosen[np.argsort(hashes, kind="stable")[:n_chosen]] = True
    return chosen


def _mix(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix the bits of each value with splitmix64, whose products overflow on purpose."""
    values = values + np.uint64(0x9E3779B97F4A7C15)
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
