"""CoNLL-U: sentences with a part of speech per word, as Universal Dependencies gives them.

The words are the syntactic ones, those with a whole number as ID: "didn't" is `did` and `n't`, each
with a tag of its own. The lines that show how they were written together (1-2) and those of words
that were left unsaid (1.1) carry no tag and are passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Literal, NamedTuple

from elmokit.errors import DataError
from elmokit.text.lines import Line, read_lines

TagSet = Literal["upos", "xpos"]
_COLUMNS = 10
_COLUMN: dict[TagSet, int] = {"upos": 3, "xpos": 4}
_SPLITS = ("train", "dev", "test")
_NOT_A_WORD = re.compile(r"[0-9]+[-.][0-9]+")


class TaggedSentence(NamedTuple):
    """The words of a sentence and their tags; None is a word without one."""

    words: tuple[str, ...]
    tags: tuple[str | None, ...]


class Splits(NamedTuple):
    """The files of a treebank."""

    train: Path
    dev: Path
    test: Path


def find_splits(folder: str | Path) -> Splits:
    """Find the three files of a treebank by their names: `*train.conllu` and so on."""
    found = []
    for split in _SPLITS:
        names = sorted(Path(folder).glob(f"*{split}.conllu*"))
        if len(names) != 1:
            there = ", ".join(p.name for p in names) or "none"
            raise DataError(
                f"{folder} must contain exactly one file *{split}.conllu, found {there}. Specify "
                "the files with --train, --dev and --test."
            )
        found.append(names[0])
    return Splits(*found)


def read_conllu(path: str | Path, tags: TagSet) -> list[TaggedSentence]:
    """Read the words of a file with their tags.

    Args:
        path: The file, also .gz, .xz, .bz2, .zst.
        tags: "upos": the 17 universal tags. "xpos": those of the treebank's own language, which
            are Penn Treebank tags in English ones.

    Raises:
        DataError: A line is not CoNLL-U, or no word has a tag of this kind.
    """
    sentences = list(_sentences(path, _COLUMN[tags]))
    if not sentences:
        raise DataError(
            f"{path} contains no sentences. Expected CoNLL-U: one word per line, in ten columns."
        )
    if all(tag is None for sentence in sentences for tag in sentence.tags):
        other = "upos" if tags == "xpos" else "xpos"
        raise DataError(
            f"{path} has no {tags.upper()} tags: column {_COLUMN[tags] + 1} is empty ('_'). "
            f"Try --tags {other}."
        )
    return sentences


def _sentences(path: str | Path, column: int) -> Iterator[TaggedSentence]:
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
                    f"found {len(fields)} columns in '{line.text:.60}', expected the {_COLUMNS} of "
                    "CoNLL-U, separated by tabs, with ID and FORM filled."
                )
            if _NOT_A_WORD.fullmatch(fields[0]):
                continue
            if fields[0] != str(len(rows) + 1):
                raise line.error(
                    f"invalid ID '{fields[0]:.20}': expected {len(rows) + 1}. Separate sentences "
                    "by an empty line, and number their words from 1."
                )
            rows.append((fields[1], None if fields[column] == "_" else fields[column]))
