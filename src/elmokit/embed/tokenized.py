"""Convert sentences as users pass them to lists of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from elmokit.config import BiLMConfig
from elmokit.errors import DataError
from elmokit.model.chars import is_truncated
from elmokit.text.tokenize import token_starts, words

#: The tokens of a sentence, and their offsets if the sentence was a string.
Tokenized = tuple[list[str], list[tuple[int, int]] | None]


def tokens_of(sentence: object, index: int) -> Tokenized:
    """Return the tokens of a sentence, and their offsets if it is a string."""
    if isinstance(sentence, str):
        tokens = words(sentence)
        starts = token_starts(sentence, tokens)
        return tokens, [(k, k + len(t)) for k, t in zip(starts, tokens, strict=True)]
    if isinstance(sentence, bytes) or not isinstance(sentence, Iterable):
        raise DataError(
            f"Sentence {index} is a {type(sentence).__name__}; expected a string or a list of "
            "tokens."
        )
    given = list(sentence)
    if not set(map(type, given)) <= {str}:
        for k, word in enumerate(given):
            if not isinstance(word, str):
                raise DataError(
                    f"Token {k} of sentence {index} is a {type(word).__name__}; expected a string."
                )
    return given, None


def check_sentences(sentences: object) -> None:
    """Raise an error for anything that is not a sequence of sentences."""
    if isinstance(sentences, str | bytes) or not isinstance(sentences, Iterable):
        raise DataError(
            f"Expected a list of sentences, got a {type(sentences).__name__}. A sentence is a "
            "string or a list of tokens."
        )


def cut_tokens(config: BiLMConfig, sentences: Sequence[Sequence[str]]) -> list[str]:
    """Return the tokens of which the token encoder reads only the beginning."""
    distinct = set(chain.from_iterable(sentences))
    if (lexicon := config.lexicon) is not None:
        most = lexicon.max_characters_per_token - 2
        cut = {token for token in distinct if len(token) > most}
    elif (cnn := config.char_cnn) is not None:
        cut = {token for token in distinct if is_truncated(token, cnn.max_characters_per_token)}
    else:
        return []
    return [token for sentence in sentences for token in sentence if token in cut] if cut else []


def longest_token(config: BiLMConfig) -> str:
    """Return the length of the longest token that is not truncated, in words."""
    if config.lexicon is not None:
        return f"{config.lexicon.max_characters_per_token - 2} characters"
    cnn = config.char_cnn
    return "anything" if cnn is None else f"{cnn.max_characters_per_token - 2} bytes"
