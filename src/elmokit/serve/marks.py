"""Sentences in which a word is meant -> where it stands in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from elmokit.embed.tokenized import tokens_of
from elmokit.errors import DataError
from elmokit.progress import plural
from elmokit.serve.errors import RequestRejected
from elmokit.serve.texts import Texts
from elmokit.text.marked import Marked


@dataclass(frozen=True)
class Uses:
    """The uses of a word in some sentences.

    Attributes:
        tokens: The sentences, without brackets.
        offsets: Of the tokens in the strings as given; None where brackets or tokens were given.
        points: Sentence and position of each use.
        senses: Of each sentence.
        without: Sentences in which the word is not.
    """

    tokens: list[list[str]]
    offsets: list[list[tuple[int, int]] | None]
    points: list[tuple[int, int]]
    senses: Sequence[str | None]
    without: list[int]

    @property
    def word(self) -> str | None:
        """The word, if all uses are of one; case makes no other word."""
        words = [self.tokens[i][k] for i, k in self.points]
        return words[0] if len({word.casefold() for word in words}) == 1 else None

    def point_senses(self) -> list[str | None]:
        """Return the sense of each use."""
        return [self.senses[i] for i, _ in self.points]

    def shown(self) -> list[dict[str, Any]]:
        """Return plain values."""
        return [
            {"sentence": i, "position": k, "word": self.tokens[i][k], "sense": self.senses[i]}
            for i, k in self.points
        ]

    def with_offsets(self, texts: Texts) -> Texts:
        """Give sentences that were tokenized here the offsets they had."""
        return replace(texts, offsets=self.offsets)


def uses_of(
    sentences: Sequence[str | list[str]], word: str | None, senses: Sequence[str | None] | None
) -> Uses:
    """Find the places that are meant.

    Args:
        sentences: With the word in brackets; or with any tokens, if `word` says which are meant.
        word: The word to look for where there are no brackets.
        senses: Of each sentence, if they are known.
    """
    if senses is not None and len(senses) != len(sentences):
        raise RequestRejected(
            422,
            f"Found {plural(len(senses), 'sense')} for {plural(len(sentences), 'sentence')}; "
            "expected one per sentence (null if unknown).",
            param="senses",
        )
    found = Uses([], [], [], senses or [None] * len(sentences), [])
    for i, sentence in enumerate(sentences):
        tokens, offsets, places = _places(sentence, i, word)
        found.tokens.append(tokens)
        found.offsets.append(offsets)
        found.points.extend((i, k) for k in places)
        if not places:
            found.without.append(i)
    if not found.points:
        raise RequestRejected(
            422,
            f"The word '{word:.60}' does not occur in the {plural(len(sentences), 'sentence')}.",
            param="word",
        )
    return found


def _places(
    sentence: str | list[str], i: int, word: str | None
) -> tuple[list[str], list[tuple[int, int]] | None, list[int]]:
    if isinstance(sentence, str) and (word is None or "[" in sentence):
        try:
            marked = Marked.read(sentence)
            return list(marked.tokens), None, [marked.position]
        except DataError as error:
            if word is None:
                message = f"Sentence {i}: {error} Alternatively, set `word`."
                raise RequestRejected(422, message, param="sentences") from error
    elif word is None:
        raise RequestRejected(
            422, f"Sentence {i} is a list of tokens: set `word` to select a token.", param="word"
        )
    tokens, offsets = tokens_of(sentence, i)
    meant = word.casefold()
    return tokens, offsets, [k for k, token in enumerate(tokens) if token.casefold() == meant]


def marked(
    sentence: str | list[str], position: int | None = None, word: str | None = None
) -> Marked:
    """Read one sentence in which a word is meant, by brackets, position or the word itself."""
    if position is not None:
        return Marked.read(tokens_of(sentence, 0)[0], position)
    if word is None:
        return Marked.read(sentence)
    tokens, _ = tokens_of(sentence, 0)
    folded = [token.casefold() for token in tokens]
    if word.casefold() not in folded:
        raise DataError(
            f"The word '{word:.60}' is not a token of this sentence. Its tokens: "
            f"{' '.join(tokens):.200}"
        )
    return Marked(tuple(tokens), folded.index(word.casefold()))
