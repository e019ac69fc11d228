"""WordNet's index of senses, and its sense keys.

A sense key has the form `lemma%type:file:id:head:id`; the type is 1 noun, 2 verb, 3 adjective, 4
adverb, 5 adjective satellite, which is treated as an adjective.

`index.sense` has one line per sense: its key, the synset, its number among the senses of the lemma
and part of speech, and its count in tagged text. No other file of WordNet is needed.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from elmokit.errors import DataError
from elmokit.text.lines import read_lines

INDEX = "index.sense"
# Default directories of Debian and Ubuntu, Princeton's installer, Homebrew.
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
_ADJECTIVE, _SATELLITE = "3", "5"


class Entry(NamedTuple):
    """A lemma, in lower case with "_" for spaces, with a part of speech.

    pos: The type digit of the sense keys, "1" to "4".
    """

    lemma: str
    pos: str


#: The sense keys of each lemma and part of speech, the most frequent sense first.
WordNet = dict[Entry, tuple[str, ...]]


def is_key(key: str) -> bool:
    """Return whether a text has the form of a sense key."""
    return _KEY.fullmatch(key) is not None


def entry_of(key: str) -> Entry:
    """Return the lemma and part of speech of a sense key."""
    lemma, _, rest = key.partition("%")
    return Entry(lemma.lower(), _ADJECTIVE if rest[0] == _SATELLITE else rest[0])


def first_sense(wordnet: WordNet, entry: Entry) -> str | None:
    """Return the first sense of a word, or None if WordNet does not contain the word."""
    return wordnet[entry][0] if entry in wordnet else None


def read_wordnet(path: str | Path | None = None) -> WordNet:
    """Read the index of senses.

    Args:
        path: The file or its directory. Default: $WNSEARCHDIR, then the directories in which
            packages install it.
    """
    path = _find_index(path)
    numbered: dict[Entry, list[tuple[int, str]]] = defaultdict(list)
    for line in read_lines([path]):
        fields = line.text.split()
        if len(fields) != 4 or not is_key(fields[0]) or not fields[2].isdigit():
            raise line.error(
                f"found '{line.text:.60}', expected a sense key, a synset, a sense number and a "
                f"count. Is this WordNet's {INDEX}? {_INSTALL_HINT}"
            )
        numbered[entry_of(fields[0])].append((int(fields[2]), fields[0]))
    if not numbered:
        raise DataError(f"{path} is empty. {_INSTALL_HINT}")
    return {entry: tuple(key for _, key in sorted(keys)) for entry, keys in numbered.items()}


def _find_index(path: str | Path | None) -> Path:
    paths = [os.environ.get("WNSEARCHDIR", ""), *DIRECTORIES] if path is None else [str(path)]
    for candidate in map(Path, filter(None, paths)):
        file = candidate / INDEX if candidate.is_dir() else candidate
        if file.is_file():
            return file
    listed = ", ".join(filter(None, paths))
    raise DataError(f"WordNet's {INDEX} not found in: {listed}. {_INSTALL_HINT}")
