"""A token as ids of two lexicons, of words and of Unicode characters, as in ELMoForManyLangs.

A token is a row: the word, then its characters between two marks, then padding. As in `chars.py`
all ids are shifted by one, so that 0 is available for padding positions (a row of zeros).

    column 0     the word: index in the lexicon of words + 1 (0 without such a lexicon)
    columns 1..  mark, characters, mark, <pad>, ...: index in the lexicon of characters + 1

As in the original, the mark before a word is `<eow>` and the one after it `<bow>`: the models were
trained with these. Tokens that are too long are truncated before the word is looked up. Case and
digits are not changed.

This module needs numpy but not torch, like `chars.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from elmokit.config import LexiconConfig
from elmokit.errors import WeightsError
from elmokit.model.chars import (
    BEGIN_SENTENCE,
    END_SENTENCE,
    PADDING_POSITION,
    check_token_lists,
)

BEGIN = "<bos>"
END = "<eos>"
UNKNOWN = "<oov>"
PAD = "<pad>"
_MARK_BEFORE = "<eow>"
_MARK_AFTER = "<bow>"
_CHARACTER_SPECIALS = (BEGIN, END, UNKNOWN, PAD, _MARK_BEFORE, _MARK_AFTER)
_WORD_SPECIALS = (UNKNOWN,)
_SHIFT = 1
_BOUNDARIES = {BEGIN_SENTENCE: BEGIN, END_SENTENCE: END}


class Lexicon:
    """The words and characters of a model, with their rows in its tables.

    Args:
        words: Row i of the word table is word i; None if the model has no such table.
        characters: The same for the characters, including the specials of the original.
        max_characters: Characters per token, including the two marks.

    Raises:
        WeightsError: A special is missing, or an entry is repeated.
    """

    def __init__(
        self,
        words: Iterable[str] | None,
        characters: Iterable[str] | None,
        max_characters: int,
    ) -> None:
        self.words = None if words is None else tuple(words)
        self.characters = None if characters is None else tuple(characters)
        self.max_characters = max_characters
        self._words = _places(self.words, "words", _WORD_SPECIALS)
        self._characters = _places(self.characters, "characters", _CHARACTER_SPECIALS)

    @property
    def pad(self) -> int:
        """The id of padding inside a token."""
        return self._characters[PAD] + _SHIFT if self._characters else PADDING_POSITION

    @property
    def columns(self) -> int:
        """Ids per token."""
        return 1 + (self.max_characters if self._characters else 0)

    def check(self, config: LexiconConfig) -> None:
        """Raise an error if the sizes do not match the tables of the model."""
        for what, entries, rows in (
            ("words", self.words, config.n_words),
            ("characters", self.characters, config.n_characters),
        ):
            n_entries = 0 if entries is None else len(entries)
            if n_entries != rows:
                raise WeightsError(
                    f"The lexicon has {n_entries:,} {what}, expected {rows:,} as in the model's "
                    "table. It is from another model, or it is truncated."
                )

    def spell(self, tokens: Sequence[str]) -> NDArray[np.int64]:
        """Return the ids of tokens; `<S>` and `</S>` are the sentence boundaries.

        Returns:
            Shape (number of tokens, columns).
        """
        rows = np.full((len(tokens), self.columns), self.pad, dtype=np.int64)
        rows[:, 0] = PADDING_POSITION
        for row, token in zip(rows, tokens, strict=True):
            token = _BOUNDARIES.get(token, token)[: self.max_characters - 2]
            if self._words:
                row[0] = self._words.get(token, self._words[UNKNOWN]) + _SHIFT
            if self._characters:
                spelling = self._spelling(token)
                row[1 : 1 + len(spelling)] = spelling
        return rows

    def batch(self, sentences: Sequence[Sequence[str]]) -> NDArray[np.int64]:
        """Return the ids of a batch of tokenized sentences, padded with zero rows.

        Returns:
            Shape (B, T, columns).
        """
        check_token_lists(sentences)
        longest = max((len(sentence) for sentence in sentences), default=0)
        ids = np.full((len(sentences), longest, self.columns), PADDING_POSITION, dtype=np.int64)
        for row, sentence in enumerate(sentences):
            ids[row, : len(sentence)] = self.spell(sentence)
        return ids

    def _spelling(self, token: str) -> list[int]:
        known = self._characters
        inner: Sequence[str] = [token] if token in (BEGIN, END) else token
        places = [known[_MARK_BEFORE], *(known.get(c, known[UNKNOWN]) for c in inner)]
        return [place + _SHIFT for place in (*places, known[_MARK_AFTER])]

    def __repr__(self) -> str:
        n_words, n_characters = len(self.words or ()), len(self.characters or ())
        return f"Lexicon({n_words:,} words, {n_characters:,} characters)"


def _places(entries: Sequence[str] | None, what: str, specials: Sequence[str]) -> dict[str, int]:
    if entries is None:
        return {}
    places = {entry: place for place, entry in enumerate(entries)}
    if len(places) != len(entries):
        twice = next(entry for place, entry in enumerate(entries) if places[entry] != place)
        raise WeightsError(f"The lexicon of {what} contains {twice!r} twice.")
    missing = [special for special in specials if special not in places]
    if missing:
        raise WeightsError(f"The lexicon of {what} does not contain {', '.join(missing)}.")
    return places
