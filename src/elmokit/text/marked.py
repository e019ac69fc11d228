"""A marked word in a sentence: "The [play] was staged ." or tokens with a position."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elmokit.errors import DataError
from elmokit.text.tokenize import tokenize

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_EXAMPLE = "Put brackets around one word, for example: I [read] the book ."


@dataclass(frozen=True)
class Marked:
    """A word in its sentence.

    Attributes:
        tokens: The sentence.
        position: The position of the word, counted from 0.
    """

    tokens: tuple[str, ...]
    position: int

    def __post_init__(self) -> None:
        if not 0 <= self.position < len(self.tokens):
            raise DataError(
                f"Invalid position {self.position}: expected 0 to {len(self.tokens) - 1} in a list "
                f"of {len(self.tokens)} tokens."
            )

    @property
    def word(self) -> str:
        """The marked token."""
        return self.tokens[self.position]

    def sides(self, around: int | None = None) -> tuple[str, str]:
        """Return the text to the left and to the right of the word.

        Args:
            around: Maximum tokens on each side; omitted tokens are shown as "...".
        """
        left, right = list(self.tokens[: self.position]), list(self.tokens[self.position + 1 :])
        if around is not None and len(left) > around:
            left = ["...", *left[len(left) - around :]]
        if around is not None and len(right) > around:
            right = [*right[:around], "..."]
        return " ".join(left), " ".join(right)

    def format(self, around: int | None = None) -> str:
        """Return the sentence with the word in brackets, shortened as by `sides`."""
        left, right = self.sides(around)
        return f"{left} [{self.word}] {right}".strip()

    @classmethod
    def read(
        cls, sentence: str | Sequence[str], position: int | None = None, *, tokenized: bool = False
    ) -> Marked:
        """Parse a query.

        Args:
            sentence: A string with one word in brackets, or a list of tokens with `position`.
            position: The position in a list of tokens.
            tokenized: The tokens of a string are separated by whitespace.
        """
        if not isinstance(sentence, str):
            return _listed(sentence, position)
        if position is not None:
            raise DataError(f"position requires a list of tokens, not a string. {_EXAMPLE}")
        return _split(sentence) if tokenized else _bracketed(sentence)


def _listed(sentence: object, position: int | None) -> Marked:
    words = tuple(sentence) if isinstance(sentence, Iterable) else ()
    if not words or not all(isinstance(word, str) for word in words):
        raise DataError(f"Expected a string or a list of tokens, got {sentence!r:.60}.")
    if position is None:
        raise DataError("A list of tokens requires position=, counted from 0.")
    return Marked(words, position)


def _split(text: str) -> Marked:
    tokens = text.split()
    marked = [i for i, t in enumerate(tokens) if len(t) > 2 and t[0] == "[" and t[-1] == "]"]
    if len(marked) != 1:
        raise _bracket_error(len(marked), text)
    tokens[marked[0]] = tokens[marked[0]][1:-1]
    return Marked(tuple(tokens), marked[0])


def _bracketed(text: str) -> Marked:
    """Tokenize a sentence without its brackets, and find the token that was in them."""
    marks = list(_BRACKETS.finditer(text))
    if len(marks) != 1:
        raise _bracket_error(len(marks), text)
    mark = marks[0]
    inside = mark[1].strip()
    if not inside:
        raise DataError(f"The brackets in '{text:.80}' are empty. {_EXAMPLE}")
    plain = text[: mark.start()] + mark[1] + text[mark.end() :]
    start = plain.index(inside, mark.start())
    end = start + len(inside)
    tokens = tokenize(plain)
    within = [i for i, token in enumerate(tokens) if token.start < end and token.end > start]
    if len(within) != 1 or tokens[within[0]].text != inside:
        names = "', '".join(tokens[i].text for i in within)
        raise DataError(
            f"The bracketed text '{inside}' is not a single token; its tokens are '{names}'. Put "
            "brackets around one of them, or pass a list of tokens and a position."
        )
    return Marked(tuple(token.text for token in tokens), within[0])


def _bracket_error(count: int, text: str) -> DataError:
    return DataError(f"Expected one bracketed word in '{text:.80}', found {count}. {_EXAMPLE}")
