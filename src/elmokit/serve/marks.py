"""Find the words that a request selects in its sentences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from elmokit.embed.tokenized import tokens_of
from elmokit.errors import DataError
from elmokit.progress import plural
from elmokit.serve.errors import RequestRejected
from elmokit.text.marked import Marked


class Uses(NamedTuple):
    """The uses of a word in a sentence.

    Attributes:
        tokens: The sentence, without brackets.
        offsets: Offsets of the tokens in the string; None if it has brackets or is a list.
        positions: The positions of the word.
    """

    tokens: list[str]
    offsets: list[tuple[int, int]] | None
    positions: list[int]


def find_uses(sentences: Sequence[str | list[str]], word: str | None) -> list[Uses]:
    """Find the word in brackets, or the tokens that equal `word`, in each sentence."""
    uses = [_uses(sentence, i, word) for i, sentence in enumerate(sentences)]
    if not any(use.positions for use in uses):
        raise RequestRejected(
            422,
            f"The word '{word:.60}' does not occur in the {plural(len(sentences), 'sentence')}.",
            param="word",
        )
    return uses


def _uses(sentence: str | list[str], i: int, word: str | None) -> Uses:
    if isinstance(sentence, str) and (word is None or "[" in sentence):
        try:
            marked = Marked.read(sentence)
            return Uses(list(marked.tokens), None, [marked.position])
        except DataError as error:
            if word is None:
                message = f"Sentence {i}: {error} Alternatively, set `word`."
                raise RequestRejected(422, message, param="sentences") from error
    elif word is None:
        raise RequestRejected(
            422, f"Sentence {i} is a list of tokens: set `word` to select a token.", param="word"
        )
    tokens, offsets = tokens_of(sentence, i)
    return Uses(tokens, offsets, _positions(tokens, word))


def _positions(tokens: list[str], word: str) -> list[int]:
    return [k for k, token in enumerate(tokens) if token.casefold() == word.casefold()]


def marked(
    sentence: str | list[str], position: int | None = None, word: str | None = None
) -> Marked:
    """Read a sentence in which brackets, a position or a word select a token."""
    if position is not None:
        return Marked.read(tokens_of(sentence, 0)[0], position)
    if word is None:
        return Marked.read(sentence)
    tokens, _ = tokens_of(sentence, 0)
    positions = _positions(tokens, word)
    if not positions:
        raise DataError(
            f"The word '{word:.60}' is not a token of this sentence. Its tokens: "
            f"{' '.join(tokens):.200}"
        )
    return Marked(tuple(tokens), positions[0])
