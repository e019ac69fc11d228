"""CoNLL-U: sentences with a part of speech per word, as in Universal Dependencies.

Only syntactic words, whose IDs are integers, are read: "didn't" is `did` and `n't`, each with its
own tag. Multiword tokens (1-2) and empty nodes (1.1) are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from elmokit.errors import DataError
from elmokit.text.lines import Line, read_lines

TagSet = Literal["upos", "xpos"]
_COLUMNS = 10
_COLUMN: dict[TagSet, int] = {"upos": 3, "xpos": 4}
_NOT_A_WORD = re.compile(r"[0-9]+[-.][0-9]+")


class TaggedSentence(NamedTuple):
    """The words of a sentence and their tags. The tag of an untagged word is None."""

    words: tuple[str, ...]
    tags: tuple[str | None, ...]


class Treebank(NamedTuple):
    """The train, dev and test sentences of a treebank."""

    train: Sequence[TaggedSentence]
    dev: Sequence[TaggedSentence]
    test: Sequence[TaggedSentence]


def read_treebank(folder: str | Path, tags: TagSet) -> Treebank:
    """Read the files `*train.conllu`, `*dev.conllu` and `*test.conllu` in a directory.

    Args:
        folder: The directory.
        tags: "upos" or "xpos", see `read_conllu`.
    """
    if not Path(folder).is_dir():
        raise DataError(f"{folder} is not a directory. Expected a directory of .conllu files.")
    splits = []
    for split in Treebank._fields:
        paths = sorted(Path(folder).glob(f"*{split}.conllu*"))
        if len(paths) != 1:
            names = ", ".join(path.name for path in paths) or "none"
            raise DataError(
                f"{folder} must contain exactly one file matching *{split}.conllu*; found {names}."
            )
        splits.append(read_conllu(paths[0], tags))
    return Treebank(*splits)


def read_conllu(path: str | Path, tags: TagSet) -> list[TaggedSentence]:
    """Read the words of a file with their tags.

    Args:
        path: The file; may be compressed (.gz, .xz, .bz2, .zst).
        tags: "upos": the 17 universal tags. "xpos": language-specific tags; in English treebanks,
            Penn Treebank tags.

    Raises:
        DataError: A line is not valid CoNLL-U, or no word has a tag of this kind.
    """
    sentences = list(_read_sentences(path, _COLUMN[tags]))
    if not sentences:
        raise DataError(
            f"{path} contains no sentences. Expected CoNLL-U: one word per line, in ten columns."
        )
    if all(tag is None for sentence in sentences for tag in sentence.tags):
        other = "upos" if tags == "xpos" else "xpos"
        raise DataError(
            f"{path} has no {tags.upper()} tags: column {_COLUMN[tags] + 1} is empty ('_'). "
            f'Use --tags {other} (in Python: tags="{other}").'
        )
    return sentences


def _read_sentences(path: str | Path, column: int) -> Iterator[TaggedSentence]:
    rows: list[tuple[str, str | None]] = []
    for line in chain(read_lines([path]), [Line("", 0, "")]):
        if not line.text.strip():
            if rows:
                words, tags = zip(*rows, strict=True)
                yield TaggedSentence(words, tags)
            rows = []
        elif not line.text.startswith("#"):
            fields = line.text.split("\t")
            if len(fields) != _COLUMNS or not all(fields[:2]):
                raise line.error(
                    f"found '{line.text:.60}', expected the {_COLUMNS} columns of CoNLL-U, "
                    "separated by tabs, with ID and FORM filled in."
                )
            if _NOT_A_WORD.fullmatch(fields[0]):
                continue
            if fields[0] != str(len(rows) + 1):
                raise line.error(
                    f"invalid ID '{fields[0]:.20}': expected {len(rows) + 1}. Separate sentences "
                    "with an empty line, and number the words of each sentence from 1."
                )
            rows.append((fields[1], None if fields[column] == "_" else fields[column]))
