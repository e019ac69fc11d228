"""WordNet's index of senses: which senses a word has, the most frequent one first.

`index.sense` has a line per sense: its key, the synset, the number of the sense among those of its
lemma and part of speech, how often it was met in tagged text. No other file of WordNet is needed.
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
# Where packages put it: Debian and Ubuntu, Princeton's own installer, Homebrew.
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
        senses: The keys of each lemma and part of speech, the first sense first.
    """

    source: str
    senses: dict[Entry, tuple[str, ...]]

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(key for keys in self.senses.values() for key in keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def first(self, entry: Entry) -> str | None:
        """Return the first sense of a word; None if it has none."""
        keys = self.senses.get(entry)
        return keys[0] if keys else None


def find_wordnet(given: str | Path | None = None) -> Path:
    """Find `index.sense`.

    Args:
        given: The file or its folder. None looks at $WNSEARCHDIR, then where packages put it.
    """
    if given is not None:
        path = Path(given) / INDEX if Path(given).is_dir() else Path(given)
        if not path.is_file():
            raise DataError(f"WordNet's {INDEX} not found at {path}. {_REMEDY}")
        return path
    own = os.environ.get("WNSEARCHDIR")
    for folder in (*([own] if own else []), *PLACES):
        if (path := Path(folder) / INDEX).is_file():
            return path
    raise DataError(
        f"WordNet's {INDEX}, which is required for first senses, not found in: "
        f"{', '.join(PLACES)}. {_REMEDY}"
    )


def read_wordnet(given: str | Path | None = None) -> WordNet:
    """Read the index of senses; see `find_wordnet` for where it is looked for."""
    path = find_wordnet(given)
    found: dict[Entry, list[tuple[int, str]]] = defaultdict(list)
    for line in read_lines([path]):
        fields = line.text.split()
        if len(fields) != 4 or not is_key(fields[0]) or not fields[2].isdigit():
            raise line.error(
                f"found '{line.text:.60}', expected a sense key, a synset, a sense number and a "
                f"count. Is this WordNet's {INDEX}? {_REMEDY}"
            )
        found[entry_of(fields[0])].append((int(fields[2]), fields[0]))
    if not found:
        raise DataError(f"{path} is empty. {_REMEDY}")
    senses = {entry: tuple(key for _, key in sorted(keys)) for entry, keys in found.items()}
    return WordNet(str(path), senses)
