"""Questions to a token index, and its answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError, DataError, nearest
from elmokit.search.neighbors import Neighbor, Neighbors
from elmokit.text.marked import Marked
from elmokit.text.tokenize import tokenize


@dataclass(frozen=True)
class Query:
    """A word in its sentence, and R_k, its vectors.

    Attributes:
        at: The word.
        layers: Shape (L + 1, 2D); None for a token of the index.
        token: The number of a token of the index.
    """

    at: Marked
    layers: FloatArray | None = None
    token: int | None = None


@dataclass(frozen=True)
class Hit(Neighbor):
    """A token of an index that is near a query.

    Attributes:
        token: Its number in the index.
        sentence: The number of its sentence.
        text: The sentence as written.
        span: Start and end of the token in `text`; None if the text came tokenised.
        file: Where the sentence stands: the file, as it was named when the index was made,
        line: and the line.
    """

    token: int = -1
    sentence: int = -1
    text: str = ""
    span: tuple[int, int] | None = None
    file: str = ""
    line: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        start, end = (None, None) if self.span is None else self.span
        return {
            **super().to_dict(),
            "token": self.token,
            "sentence": self.sentence,
            "text": self.text,
            "start": start,
            "end": end,
            "file": self.file,
            "line": self.line,
        }


@dataclass(frozen=True, repr=False)
class IndexNeighbors(Neighbors):
    """The nearest tokens of one query in an index.

    Attributes:
        token: The number of the query, if it is a token of the index.
    """

    token: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        values = super().to_dict()
        if self.token is not None:
            values["query"]["token"] = self.token
        return values


def mark(
    sentence: str,
    word: str | None = None,
    *,
    position: int | None = None,
    occurrence: int = 0,
    tokenized: bool = False,
) -> Marked:
    """Return a word in its sentence, for a sentence without brackets.

    Args:
        sentence: A string.
        word: Which token is meant, as it stands there,
        position: or its number, counted from 0.
        occurrence: Which one, if the word stands there more than once.
        tokenized: The tokens are what whitespace separates.
    """
    tokens = tuple(sentence.split() if tokenized else [t.text for t in tokenize(sentence)])
    if (word is None) == (position is None):
        raise ConfigError("Say which token is meant, by word= or by position=.")
    if position is None:
        places = [k for k, token in enumerate(tokens) if token == word]
        if occurrence >= len(places):
            found = f"stands {len(places)} times" if places else "is not a token"
            raise DataError(
                f"The word '{word}' {found} in this sentence.{nearest(word, tokens)} "
                f"Its tokens: {' '.join(tokens)}"
            )
        position = places[occurrence]
    return Marked(tokens, position)
