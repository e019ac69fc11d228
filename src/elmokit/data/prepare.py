"""Prepare a corpus from text files (see `elmokit.data.layout` for its format).

Memory holds one copy of the word types and a few blocks of text, regardless of the length of the
text. First, blocks are tokenized in parallel and counted; then types are ranked and encoded as
character ids; then ids are replaced by the final ones. The files are written to a temporary
directory, which is renamed at the end. Until then, the output needs twice its size on disk.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

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
from elmokit.data.reading import Reading, check_files, plain_size
from elmokit.data.split import choose_documents
from elmokit.data.workers import Workers, available_cores
from elmokit.data.writing import write_corpus
from elmokit.errors import ConfigError, DataError, ElmoWarning
from elmokit.storage.overwrite import Kind, new_directory
from elmokit.storage.regular import resolve_output
from elmokit.text.vocab import SPECIALS, Vocabulary

#: About half a second of work: long enough to be worth sending, short enough to wait for.
BLOCK_CHARACTERS = 1 << 21

_WORK = "work"

File = str | os.PathLike[str]


@dataclass(frozen=True)
class Summary:
    """What was done.

    Attributes:
        output: The folder.
        meta: What is in it.
        first_skipped: What was wrong with the first line left out, if any was.
        n_bytes: Bytes of text read.
        seconds: Time taken.
        workers: Processes that could be used.
    """

    output: Path
    meta: Meta
    first_skipped: str
    n_bytes: int
    seconds: float
    workers: int

    @property
    def megabytes_per_second(self) -> float:
        """Text read per second, from the start to the end of the work."""
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
    block_characters: int = BLOCK_CHARACTERS,
    vocabulary: Vocabulary | None = None,
) -> Summary:
    """Prepare text for training.

    In a script of one's own the call belongs under `if __name__ == "__main__":`, because worker
    processes import the script; with `workers=1` there are none.

    Args:
        files: Text files, also packed ones; "-" is standard input.
        output: The folder to make.
        settings: What decides the result.
        valid_files: Text to hold out for evaluation, instead of `settings.valid`. Its words do not
            count for the vocabulary.
        skip_bad: Leave out and count lines that are not UTF-8 instead of raising.
        overwrite: Replace a prepared corpus that is there already.
        workers: Processes; None for one per core.
        on_progress: Called after each block of text.
        block_characters: How much text is worked on at a time; it changes no result.
        vocabulary: The words of an existing model's head: ids are then its ids, and no words are
            chosen by count. All other words are <UNK> as targets.

    Raises:
        ConfigError: The settings contradict one another.
        DataError: The text cannot be read, or there is too little of it.
        OutputError: The folder cannot be written, or may not be replaced.
    """
    settings = settings or PrepareSettings()
    if settings.valid is not None and valid_files:
        raise ConfigError("Hold out documents (valid) or files (valid_files), not both.")
    if vocabulary is not None:
        _check_given(vocabulary, settings)
    n_workers = available_cores() if workers is None else workers
    if n_workers < 1:
        raise ConfigError(f"workers should be 1 or more, found {n_workers}.")
    start = time.monotonic()
    target = resolve_output(output)
    check_files(files, valid_files)
    kind = Kind("prepared corpus", FILES, is_corpus)
    with (
        new_directory(target, kind, overwrite=overwrite) as folder,
        Workers(n_workers) as pool,
    ):
        work = folder / _WORK
        text = CountedText(
            work,
            Reading(settings.one_sentence_per_line, settings.tokenized),
            block_characters=block_characters,
            skip_bad=skip_bad,
            total_bytes=plain_size([*files, *valid_files]),
            on_progress=on_progress,
            vocabulary=() if vocabulary is None else vocabulary.words[N_SPECIALS:],
        )
        text.read(files, pool)
        n_train = len(text.bounds) - 1
        if valid_files:
            text.read(valid_files, pool)
        held_out = np.arange(len(text.bounds) - 1) >= n_train
        if settings.valid is not None:
            held_out = choose_documents(n_train, settings.valid, settings.seed)
        meta = write_corpus(text, held_out, settings, folder, vocabulary)
        work.unlink()
    _warn_of_reserved(meta)
    seconds = time.monotonic() - start
    return Summary(target, meta, text.first_skipped, text.n_bytes, seconds, n_workers)


def given_vocabulary(path: File) -> Vocabulary:
    """Read the vocabulary to prepare text with.

    Args:
        path: A file with one word per line, or a folder that holds one: a model, a prepared corpus.

    Raises:
        DataError: There is none, or it is damaged.
    """
    where = Path(path).expanduser()
    if not where.is_dir():
        return Vocabulary.from_file(where)
    if not (where / VOCABULARY).is_file():
        raise DataError(
            f"The folder {where} has no {VOCABULARY}. A model without a language-model head needs "
            "none: prepare the text with its own vocabulary, and `elmo finetune` makes a head."
        )
    return Vocabulary.from_file(where / VOCABULARY)


def _check_given(vocabulary: Vocabulary, settings: PrepareSettings) -> None:
    chosen = (settings.min_count, settings.max_vocab)
    if chosen != (PrepareSettings.min_count, PrepareSettings.max_vocab):
        raise ConfigError(
            "With a given vocabulary no words are chosen by count: leave out min_count and "
            "max_vocab (--min-count, --max-vocab)."
        )
    vocabulary.require_specials()
    if len(vocabulary) == N_SPECIALS:
        raise DataError(f"The given vocabulary holds no words but {' '.join(SPECIALS)}.")
    found = vocabulary.words[:N_SPECIALS]
    if found != SPECIALS:
        raise DataError(
            f"The given vocabulary should start with the lines {' '.join(SPECIALS)}, found "
            f"{' '.join(found)}. Put these three first, if no head was learned in another order."
        )


def _warn_of_reserved(meta: Meta) -> None:
    found = sum(split.reserved_tokens for split in meta.splits.values())
    if found:
        warnings.warn(
            f"The text holds {found:,} words that are written like a special symbol "
            f"({', '.join(RESERVED)}). They are stored as <UNK>, so that none looks like the end "
            "of a sentence. If they mark sentences, take them out: ends of sentences are added.",
            ElmoWarning,
            stacklevel=3,
        )
