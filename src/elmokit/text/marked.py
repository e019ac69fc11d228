"""Parse sentences with a marked word, for example "The [play] was staged ."."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elmokit.errors import DataError
from elmokit.progress import plural
from elmokit.text.tokenize import tokenize

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_EXAMPLE = "Put brackets around one word, for example: I [read] the book ."


@dataclass(frozen=True)
class MarkedWord:
    """A word that is marked in its sentence.

    Attributes:
        tokens: The tokens of the sentence.
        position: The index of the marked word.
    """

    tokens: tuple[str, ...]
    position: int

    def __post_init__(self) -> None:
        if not 0 <= self.position < len(self.tokens):
            raise DataError(
                f"Invalid position {self.position}: expected 0 to {len(self.tokens) - 1} for a "
                f"list of {plural(len(self.tokens), 'token')}."
            )

    @property
    def word(self) -> str:
        """The marked token."""
        return self.tokens[self.position]

    def context(self, max_tokens: int | None = None) -> tuple[str, str]:
        """Return the text to the left and right of the marked word.

        Args:
            max_tokens: Maximum number of tokens on each side. Omitted tokens are replaced by "...".
        """
        left, right = list(self.tokens[: self.position]), list(self.tokens[self.position + 1 :])
        if max_tokens is not None and len(left) > max_tokens:
            left = ["...", *left[len(left) - max_tokens :]]
        if max_tokens is not None and len(right) > max_tokens:
            right = [*right[:max_tokens], "..."]
        return " ".join(left), " ".join(right)

    def format(self, max_tokens: int | None = None) -> str:
        """Return the sentence with the marked word in brackets, shortened as in `context`."""
        left, right = self.context(max_tokens)
        return f"{left} [{self.word}] {right}".strip()

    @classmethod
    def parse(
        cls, sentence: str | Sequence[str], position: int | None = None, *, tokenized: bool = False
    ) -> MarkedWord:
        """Parse a sentence with a marked word.

        Args:
            sentence: A string with one word in brackets, or a list of tokens.
            position: The index of the marked word, if `sentence` is a list of tokens.
            tokenized: Whether a string is already tokenized, with tokens separated by whitespace.

        Raises:
            DataError: The sentence does not have exactly one marked word.
        """
        if not isinstance(sentence, str):
            return _from_tokens(sentence, position)
        if position is not None:
            raise DataError(
                f"The argument position requires a list of tokens, but got a string. {_EXAMPLE}"
            )
        return _from_tokenized_text(sentence) if tokenized else _from_text(sentence)


def _from_tokens(sentence: object, position: int | None) -> MarkedWord:
    words = tuple(sentence) if isinstance(sentence, Iterable) else ()
    if not words or not all(isinstance(word, str) for word in words):
        raise DataError(
            f"Invalid sentence {sentence!r:.60}: expected a string or a list of at least one token."
        )
    if position is None:
        raise DataError(
            "A list of tokens requires the argument position (0-based index of the word)."
        )
    return MarkedWord(words, position)


def _from_tokenized_text(text: str) -> MarkedWord:
    tokens = text.split()
    marked = [i for i, t in enumerate(tokens) if len(t) > 2 and t[0] == "[" and t[-1] == "]"]
    if len(marked) != 1:
        raise _bracket_error(len(marked), text)
    tokens[marked[0]] = tokens[marked[0]][1:-1]
    return MarkedWord(tuple(tokens), marked[0])


def _from_text(text: str) -> MarkedWord:
    """Tokenize a sentence without the brackets, and find the token that was in brackets."""
    matches = list(_BRACKETS.finditer(text))
    if len(matches) != 1:
        raise _bracket_error(len(matches), text)
    match = matches[0]
    word = match[1].strip()
    if not word:
        raise DataError(f"The brackets in '{text:.80}' are empty. {_EXAMPLE}")
    plain = text[: match.start()] + match[1] + text[match.end() :]
    start = plain.index(word, match.start())
    end = start + len(word)
    tokens = tokenize(plain)
    marked = [i for i, token in enumerate(tokens) if token.start < end and token.end > start]
    if len(marked) != 1 or tokens[marked[0]].text != word:
        names = "', '".join(tokens[i].text for i in marked)
        raise DataError(
            f"The bracketed text '{word}' is not a single token. Tokens at this position: "
            f"'{names}'. Put brackets around one token, or pass a list of tokens and a position."
        )
    return MarkedWord(tuple(token.text for token in tokens), marked[0])


def _bracket_error(count: int, text: str) -> DataError:
    return DataError(
        f"Expected exactly one bracketed word in '{text:.80}', but found {count}. {_EXAMPLE}"
    )
