"""WordNet's index of senses: the senses of each word, the most frequent one first.

`index.sense` has one line per sense: its key, the synset, its number among the senses of the lemma
and part of speech, and its count in tagged text. No other file of WordNet is needed.
"""

from __future__ import annotations

import os
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from elmokit.errors import DataError
from elmokit.probes.senses import Entry, entry_of, is_key
from elmokit.text.lines import read_lines

INDEX = "index.sense"
# Default directories of Debian and Ubuntu, Princeton's installer, Homebrew.
PLACES = (
    "/usr/share/wordnet",
    "/usr/local/WordNet-3.0/dict",
    "/usr/local/share/wordnet/dict",
    "/opt/homebrew/opt/wordnet/dict",
)
_REMEDY = (
    "On Debian and Ubuntu: apt-get install wordnet-base wordnet-sense-index. On other systems, "
    "download Princeton WordNet 3.0 and pass its `dict` directory with --wordnet."
)


@dataclass(frozen=True)
class WordNet:
    """The senses of words.

    Attributes:
        source: The file they were read from.
        senses: The keys of each lemma and part of speech, in WordNet's order.
    """

    source: str
    senses: dict[Entry, tuple[str, ...]]

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(key for keys in self.senses.values() for key in keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def first(self, entry: Entry) -> str | None:
        """Return the first sense of a word; None: the word is unknown."""
        keys = self.senses.get(entry)
        return keys[0] if keys else None


def find_wordnet(path: str | Path | None = None) -> Path:
    """Find `index.sense`.

    Args:
        path: The file or its directory. Default: $WNSEARCHDIR, then the directories of packages.
    """
    places = [os.environ.get("WNSEARCHDIR", ""), *PLACES] if path is None else [str(path)]
    for place in filter(None, places):
        file = Path(place) / INDEX if Path(place).is_dir() else Path(place)
        if file.is_file():
            return file
    listed = ", ".join(filter(None, places))
    raise DataError(f"WordNet's {INDEX} not found in: {listed}. {_REMEDY}")


def read_wordnet(path: str | Path | None = None) -> WordNet:
    """Read the index of senses; see `find_wordnet` for the default path."""
    path = find_wordnet(path)
    numbered: dict[Entry, list[tuple[int, str]]] = defaultdict(list)
    for line in read_lines([path]):
        fields = line.text.split()
        if len(fields) != 4 or not is_key(fields[0]) or not fields[2].isdigit():
            raise line.error(
                f"found '{line.text:.60}', expected a sense key, a synset, a sense number and a "
                f"count. Is this WordNet's {INDEX}? {_REMEDY}"
            )
        numbered[entry_of(fields[0])].append((int(fields[2]), fields[0]))
    if not numbered:
        raise DataError(f"{path} is empty. {_REMEDY}")
    senses = {entry: tuple(key for _, key in sorted(keys)) for entry, keys in numbered.items()}
    return WordNet(str(path), senses)
