"""WordNet's senses, and SemCor, a corpus annotated with them.

A sense key has the form `lemma%type:file:id:head:id`; the type is 1 for nouns, 2 for verbs, 3 for
adjectives, 4 for adverbs, and 5 for adjective satellites, which are treated as adjectives.

`index.sense` has one line per sense: its key, its synset, its rank among the senses of the lemma
and part of speech, and its count in tagged text. No other file of WordNet is needed.

SemCor is read from JSON lines:

    {"tokens": [["It", "PRP", "", null], ["rains", "VB", "rain", "rain%2:43:00::"]]}

A token has a form, a part of speech, a lemma and a sense key. The key is null if the token has
no sense. If the annotators could not decide, the key lists alternatives: "year%1:28:02::;1:28:01::"
stands for two senses of "year". Such a word counts as a use of each alternative. Names have the
sense of their category ("Fulton County" is a location, location%1:03:00::) and count as uses of
that sense. A multiword expression ("took place") is a span of several words, and its vector is the
mean of the vectors of these words.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from elmokit.errors import DataError
from elmokit.text.lines import Line, read_lines
from elmokit.text.treebank import unescape
from elmokit.text.typed_json import parse_json

INDEX = "index.sense"
# The default directories of Debian and Ubuntu, Princeton's installer, and Homebrew.
DIRECTORIES = (
    "/usr/share/wordnet",
    "/usr/local/WordNet-3.0/dict",
    "/usr/local/share/wordnet/dict",
    "/opt/homebrew/opt/wordnet/dict",
)
_INSTALL_HINT = (
    "On Debian and Ubuntu: apt-get install wordnet-base wordnet-sense-index. On other systems, "
    "download Princeton WordNet 3.0 and pass its `dict` directory with --wordnet."
)
_KEY = re.compile(r"[^%\s;]+%[1-5]:[0-9]+:[0-9]+:[^:\s;]*:[0-9]*")
_NUMBER = re.compile("[0-9]{1,9}")
_ADJECTIVE, _SATELLITE = "3", "5"
# In some keys of adjectives, the head word has a syntactic marker such as "(a)", which WordNet's
# index omits.
_MARKER = re.compile(r"\((?:a|p|ip)\)")
_EXPECTED = 'Expected {"tokens": [[form, pos, lemma, sense key or null], ...]}.'


class Entry(NamedTuple):
    """A lemma and its part of speech.

    Attributes:
        lemma: The lemma in lowercase, with "_" for spaces.
        pos: The type digit of the sense keys, "1" to "4".
    """

    lemma: str
    pos: str


#: The sense keys of each lemma and part of speech, the most frequent sense first.
WordNet = dict[Entry, tuple[str, ...]]


def parse_sense_key(key: str) -> Entry:
    """Return the lemma and part of speech of a sense key."""
    lemma, _, rest = key.partition("%")
    return Entry(lemma.lower(), _ADJECTIVE if rest[0] == _SATELLITE else rest[0])


def first_sense(wordnet: WordNet, entry: Entry) -> str | None:
    """Return the first sense of a word, or None if WordNet does not contain the word."""
    return wordnet[entry][0] if entry in wordnet else None


def read_wordnet(path: str | Path | None = None) -> WordNet:
    """Read the index of senses.

    Args:
        path: The file or its directory. Default: $WNSEARCHDIR, then the default directories of
            common packages.
    """
    path = _find_index(path)
    numbered: dict[Entry, list[tuple[int, str]]] = defaultdict(list)
    for line in read_lines([path]):
        fields = line.text.split()
        if len(fields) != 4 or not _KEY.fullmatch(fields[0]) or not _NUMBER.fullmatch(fields[2]):
            raise line.error(
                f"found '{line.text:.60}', expected a sense key, a synset, a sense number and a "
                f"count. Check that this is WordNet's {INDEX}. {_INSTALL_HINT}"
            )
        numbered[parse_sense_key(fields[0])].append((int(fields[2]), fields[0]))
    if not numbered:
        raise DataError(f"{path} is empty. {_INSTALL_HINT}")
    return {entry: tuple(key for _, key in sorted(keys)) for entry, keys in numbered.items()}


def _find_index(path: str | Path | None) -> Path:
    paths = [os.environ.get("WNSEARCHDIR", ""), *DIRECTORIES] if path is None else [str(path)]
    for candidate in map(Path, filter(None, paths)):
        file = candidate / INDEX if candidate.is_dir() else candidate
        if file.is_file():
            return file
    listed = ", ".join(f"'{candidate}'" for candidate in filter(None, paths))
    raise DataError(f"Cannot find WordNet's {INDEX} in {listed}. {_INSTALL_HINT}")


# ------------------------------------------------------------------------------------------ SemCor


class SenseSpan(NamedTuple):
    """The words start, ..., end - 1 of a sentence, and their senses."""

    start: int
    end: int
    keys: tuple[str, ...]


class SenseSentence(NamedTuple):
    """A sentence, and its spans that are annotated with senses."""

    words: tuple[str, ...]
    spans: tuple[SenseSpan, ...]


class _Item(BaseModel):
    tokens: list[tuple[str, Any, Any, str | None]]


def read_semcor(path: str | Path) -> list[SenseSentence]:
    """Read sentences annotated with senses.

    Args:
        path: A file with one JSON object per line; may be compressed (.gz, .xz, .bz2, .zst).

    Raises:
        DataError: A line is invalid, or no word has a sense.
    """
    sentences = [_read_sentence(line) for line in read_lines([path]) if line.text.strip()]
    if not any(sentence.spans for sentence in sentences):
        raise DataError(f"{path} contains no words annotated with a sense. {_EXPECTED}")
    return sentences


def split_form(form: str) -> list[str]:
    """Split a form into words: "took place" and "took_place" are two words.

    Penn Treebank quotes and brackets are replaced with those of raw text.
    """
    parts = form.split() if " " in form else form.split("_")
    return [unescape(part) for part in parts if part] or [form]


def _read_sentence(line: Line) -> SenseSentence:
    item = parse_json(_Item, line.text, f"{line.path}, line {line.number}", _EXPECTED)
    words: list[str] = []
    spans: list[SenseSpan] = []
    for number, (form, _, _, key) in enumerate(item.tokens):
        if not form.strip():
            raise line.error(f"tokens[{number}]: empty form. {_EXPECTED}")
        start = len(words)
        words += split_form(form)
        if key is not None:
            spans.append(SenseSpan(start, len(words), _parse_keys(key, line, number)))
    return SenseSentence(tuple(words), tuple(spans))


def _parse_keys(text: str, line: Line, number: int) -> tuple[str, ...]:
    """Return the alternatives in a key, all but the first of which may omit the lemma."""
    lemma = text.partition("%")[0]
    alternatives = _MARKER.sub("", text).split(";")
    keys = tuple(key if "%" in key else f"{lemma}%{key}" for key in alternatives)
    if not all(map(_KEY.fullmatch, keys)):
        raise line.error(
            f"tokens[{number}]: invalid sense '{text}'; expected a WordNet sense key such as "
            "play%1:04:00::, or several separated by ';'."
        )
    return tuple(dict.fromkeys(keys))
