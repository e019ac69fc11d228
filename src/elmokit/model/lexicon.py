"""Convert tokens to ids of words and of Unicode characters, as in ELMoForManyLangs.

The ids of a token form a row. As in `chars.py`, all ids are shifted by one, so that 0 is available
for padding positions (a row of zeros).

    column 0     the word: 1 + its index in the list of words (0 if there is no such list)
    columns 1..  marker, characters, marker, <pad>, ...: 1 + index in the list of characters

The marker before a word is `<eow>` and the marker after a word is `<bow>`, because the original
models were trained with this order. Tokens that are too long are truncated before they are looked
up in the list of words. Case and digits are not changed.

This module needs numpy but not torch, like `chars.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from elmokit.config import BiLMConfig, LexiconConfig
from elmokit.errors import ConfigError, WeightsError
from elmokit.model.chars import (
    BEGIN_SENTENCE,
    END_SENTENCE,
    PADDING_POSITION,
    char_ids_table,
    padded_ids,
)
from elmokit.progress import plural

BEGIN = "<bos>"
END = "<eos>"
UNKNOWN = "<oov>"
PAD = "<pad>"
_MARKER_BEFORE = "<eow>"
_MARKER_AFTER = "<bow>"
_CHARACTER_SPECIALS = (BEGIN, END, UNKNOWN, PAD, _MARKER_BEFORE, _MARKER_AFTER)
_WORD_SPECIALS = (UNKNOWN,)
_SHIFT = 1
_BOUNDARIES = {BEGIN_SENTENCE: BEGIN, END_SENTENCE: END}


class Lexicon:
    """The words and characters of a model, in the order of its embedding tables.

    Args:
        words: The words; None if the model has no word embeddings.
        characters: The characters and special symbols; None if the model has no character
            embeddings.
        max_characters: Maximum number of characters per token, including the two markers.

    Raises:
        WeightsError: A special symbol is missing, or an entry is repeated.
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
        self._words = _indices(self.words, "words", _WORD_SPECIALS)
        self._characters = _indices(self.characters, "characters", _CHARACTER_SPECIALS)

    @property
    def pad(self) -> int:
        """The id of padding inside a token."""
        return self._characters[PAD] + _SHIFT if self._characters else PADDING_POSITION

    @property
    def columns(self) -> int:
        """Number of ids per token."""
        return 1 + (self.max_characters if self._characters else 0)

    def check(self, config: LexiconConfig) -> None:
        """Raise an error if the sizes do not match the configuration of the model."""
        for name, entries, rows in (
            ("word", self.words, config.n_words),
            ("character", self.characters, config.n_characters),
        ):
            n_entries = 0 if entries is None else len(entries)
            if n_entries != rows:
                raise WeightsError(
                    f"The lexicon has {plural(n_entries, name)}; expected {rows:,}, as in the "
                    "weights. It belongs to another model, or it is truncated."
                )

    def token_ids(self, tokens: Sequence[str]) -> NDArray[np.int64]:
        """Return the ids of tokens. `<S>` and `</S>` are treated as sentence boundaries.

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

    def batch_ids(self, sentences: Sequence[Sequence[str]]) -> NDArray[np.int64]:
        """Return the ids of tokenized sentences, padded with zeros.

        Returns:
            Shape (B, T, columns).
        """
        return padded_ids(sentences, self.columns, self.token_ids)

    def _spelling(self, token: str) -> list[int]:
        indices, unknown = self._characters, self._characters[UNKNOWN]
        characters: Sequence[str] = [token] if token in (BEGIN, END) else token
        spelling = [indices.get(character, unknown) for character in characters]
        spelling = [indices[_MARKER_BEFORE], *spelling, indices[_MARKER_AFTER]]
        return [index + _SHIFT for index in spelling]

    def __repr__(self) -> str:
        n_words, n_characters = len(self.words or ()), len(self.characters or ())
        return f"Lexicon({n_words:,} words, {n_characters:,} characters)"


def encoder_ids(
    tokens: Sequence[str],
    config: BiLMConfig,
    lexicon: Lexicon | None,
    word_index: Callable[[str], int] | None,
) -> NDArray[np.int64]:
    """Return the ids that the token encoder of a biLM reads.

    Args:
        tokens: The tokens.
        config: The configuration of the biLM.
        lexicon: The lexicon, for a model that has one.
        word_index: Function that returns the index of a word in the vocabulary. Required for a
            model that reads word ids.

    Returns:
        Shape (number of tokens, columns), or (number of tokens,) for a model that reads word ids.
    """
    if config.char_cnn is not None:
        return char_ids_table(tokens, config.char_cnn.max_characters_per_token)
    if lexicon is not None:
        return lexicon.token_ids(tokens)
    if word_index is None:
        raise ConfigError(
            "The model reads words, not characters, but has no vocabulary. Put its vocab.txt into "
            "the same directory as the weights."
        )
    return np.array([word_index(token) + 1 for token in tokens], dtype=np.int64)


def _indices(entries: Sequence[str] | None, name: str, specials: Sequence[str]) -> dict[str, int]:
    if entries is None:
        return {}
    indices = {entry: index for index, entry in enumerate(entries)}
    if len(indices) != len(entries):
        duplicate = next(entry for index, entry in enumerate(entries) if indices[entry] != index)
        raise WeightsError(
            f"The lexicon of {name} contains {duplicate!r} more than once. Download or convert "
            "the model again."
        )
    missing = [special for special in specials if special not in indices]
    if missing:
        raise WeightsError(
            f"The lexicon of {name} does not contain {', '.join(missing)}. Download or convert the "
            "model again."
        )
    return indices
