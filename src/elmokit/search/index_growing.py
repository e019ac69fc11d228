"""The arrays of an index while it is made: a journal says how far they can be trusted.

What a part of the text adds is written to the end of the arrays, brought to the disk, and then
noted in the journal, which is replaced as a whole. After a kill the arrays are cut back to what the
journal says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from elmokit.bulk.input import Sentence
from elmokit.errors import DataError
from elmokit.search.index_files import HEAD, Column, GrowingArray
from elmokit.search.neighbors import sentence_print
from elmokit.storage.atomic import replace_file

_JOURNAL = "journal.json"
# The folder grows under the name that `WorkDirectory.finish` renames to that of the index.
_GROWING = "output.tmp"


class Done(NamedTuple):
    """The journal: how far the work has gone.

    Attributes:
        tokens: Tokens that are in the arrays.
        cut_tokens: How many of them were too long for the model.
        n_bytes: Bytes of the text that were read.
        place: Of the last sentence.
        digest: Of the text up to its line.
        full: Whether the last part was as long as parts are, so that more may follow.
        rows: The length of each array.
    """

    tokens: int = 0
    cut_tokens: int = 0
    n_bytes: int = 0
    place: tuple[int, int, int] = (-1, 0, 0)
    digest: str = ""
    full: bool = True
    rows: dict[str, int] = {}  # noqa: RUF012  # never changed

    @classmethod
    def read(cls, work: Path) -> Done:
        """Read the journal of a work directory; without one nothing is done yet."""
        path = work / _JOURNAL
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError) as error:
            raise DataError(
                f"{path} cannot be read ({error}). Start anew with --overwrite."
            ) from error

    def write(self, work: Path) -> None:
        """Replace the journal."""
        with replace_file(work / _JOURNAL) as file:
            file.write_text(json.dumps(self._asdict()), encoding="utf-8")


class Growing:
    """The arrays of an index that is being made.

    Args:
        work: The work directory.
        names: The arrays.

    Attributes:
        done: What the journal says.
        arrays: The arrays, cut back to that.
        words: The number of each word that is in them.
    """

    def __init__(self, work: Path, names: Mapping[str, Column]) -> None:
        self.work = work
        self.folder = work / _GROWING
        self.done = Done.read(work)
        self.folder.mkdir(exist_ok=True)
        rows = self.done.rows
        self.arrays = {
            name: GrowingArray(self.folder / f"{name}.npy", column, rows.get(name, 0))
            for name, column in names.items()
        }
        self.words = {word: number for number, word in enumerate(self._spellings())}

    def _spellings(self) -> list[str]:
        """Return the words that are in the arrays."""
        n = self.done.rows.get("spelling_ends", 0)
        if not n:
            return []
        ends = np.fromfile(self.folder / "spelling_ends.npy", np.int64, n, offset=HEAD)
        text = (self.folder / "spellings.npy").read_bytes()[HEAD:]
        starts = [0, *ends[:-1].tolist()]
        pairs = zip(starts, ends.tolist(), strict=True)
        return [text[a:z].decode("utf-8", "surrogatepass") for a, z in pairs]

    def commit(self, done: Done) -> None:
        """Bring what was added to the disk, and note that it is there."""
        for array in self.arrays.values():
            array.sync()
        self.done = done._replace(rows={name: a.rows for name, a in self.arrays.items()})
        self.done.write(self.work)

    def close(self) -> None:
        """Close the files."""
        for array in self.arrays.values():
            array.close()

    def add_words(self, tokens: Sequence[str]) -> list[int]:
        """Add the words of tokens; return the places of the words that were not there before."""
        known = self.words
        first_seen: list[int] = []
        numbers = np.empty(len(tokens), dtype=np.int32)
        for place, token in enumerate(tokens):
            number = known.get(token)
            if number is None:
                number = known[token] = len(known)
                first_seen.append(place)
            numbers[place] = number
        self.arrays["words"].append(numbers)
        self._add_strings("spellings", "spelling_ends", [tokens[place] for place in first_seen])
        return first_seen

    def add_sentences(self, sentences: Sequence[Sentence]) -> None:
        """Add where sentences and their tokens stand, and the sentences as written."""
        add = {name: array.append for name, array in self.arrays.items()}
        spans, places = [], []
        for s in sentences:
            spans += [(-1, -1)] * len(s.tokens) if s.spans is None else s.spans
            begins = 0 if s.spans is None else s.spans[0][0] - max(s.text.find(s.tokens[0]), 0)
            places.append((*s.place, begins))
        add["spans"](np.array(spans, dtype=np.int32))
        add["places"](np.array(places, dtype=np.int64))
        add["ends"](self.done.tokens + np.cumsum([len(s.tokens) for s in sentences]))
        add["prints"](np.array([sentence_print(s.tokens) for s in sentences], dtype=np.int64))
        self._add_strings("text", "text_ends", [s.text for s in sentences])

    def _add_strings(self, name: str, ends: str, strings: Sequence[str]) -> None:
        """Add strings, and where each of them ends."""
        written = [s.encode("utf-8", "surrogatepass") for s in strings]
        before = self.arrays[name].rows
        self.arrays[ends].append(before + np.cumsum([len(w) for w in written], dtype=np.int64))
        self.arrays[name].append(np.frombuffer(b"".join(written), dtype=np.uint8))
