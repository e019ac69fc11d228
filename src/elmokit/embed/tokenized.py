"""Check and tokenize the sentences and texts that users pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from elmokit.config import BiLMConfig
from elmokit.errors import DataError
from elmokit.model.chars import check_tokens, is_truncated
from elmokit.progress import plural
from elmokit.text.sentences import split_sentences
from elmokit.text.tokenize import token_starts, words

#: The tokens of a sentence, and their offsets if the sentence was a string.
TokenizedSentence = tuple[list[str], list[tuple[int, int]] | None]


def as_tokens(sentence: object, index: int, kind: str = "Sentence") -> TokenizedSentence:
    """Return the tokens of a sentence, and their offsets if it is a string.

    Args:
        sentence: A string, or any iterable of tokens.
        index: The index of the sentence in the input, for error messages.
        kind: "Sentence" or "Text", for error messages.
    """
    if isinstance(sentence, str):
        tokens = words(sentence)
        starts = token_starts(sentence, tokens)
        return tokens, [(k, k + len(t)) for k, t in zip(starts, tokens, strict=True)]
    if isinstance(sentence, bytes) or not isinstance(sentence, Iterable):
        raise DataError(
            f"{kind} {index} has type {type(sentence).__name__} ({sentence!r:.40}); expected a "
            "string or a list of tokens."
        )
    tokens = list(sentence)
    if not set(map(type, tokens)) <= {str}:
        check_tokens(tokens, f"{kind.lower()} {index}")
    return tokens, None


def check_sentences(sentences: object, kind: str = "sentence") -> None:
    """Raise an error if the argument is not an iterable of sentences or texts."""
    if isinstance(sentences, str | bytes) or not isinstance(sentences, Iterable):
        raise DataError(
            f"Expected a list of {kind}s, got {type(sentences).__name__}. A {kind} is a "
            "string or a list of tokens."
        )


def check_texts(texts: Any) -> None:
    """Raise an error if the argument is not a list or a column of texts."""
    check_sentences(texts, "text")
    shape = getattr(texts, "shape", (0,))
    if len(shape) != 1:
        raise DataError(
            f"Expected one column of texts, got {type(texts).__name__} of shape "
            f"{tuple(shape)}. In a ColumnTransformer, use 'text' instead of ['text']."
        )


def split_text(text: Any, index: int) -> list[list[str]]:
    """Split a text into tokenized sentences. A list of tokens is a single sentence.

    Args:
        text: A string, or any iterable of tokens.
        index: The index of the text in the input, for error messages.
    """
    if isinstance(text, str):
        return list(map(words, split_sentences(text)))
    return [as_tokens(text, index, "Text")[0]]


def truncated_tokens(config: BiLMConfig, sentences: Sequence[Sequence[str]]) -> list[str]:
    """Return the tokens that the token encoder truncates, because they are too long."""
    distinct = set(chain.from_iterable(sentences))
    truncated: set[str] = set()
    if (lexicon := config.lexicon) is not None:
        longest = lexicon.max_characters_per_token - 2
        truncated = {token for token in distinct if len(token) > longest}
    elif (cnn := config.char_cnn) is not None:
        longest = cnn.max_characters_per_token
        truncated = {token for token in distinct if is_truncated(token, longest)}
    return [token for token in chain.from_iterable(sentences) if token in truncated]


def truncation_warning(config: BiLMConfig, tokens: Sequence[str]) -> str:
    """Return the text of the warning about truncated tokens."""
    first = ": " if len(tokens) == 1 else "; the first is "
    return (
        f"Truncated {plural(len(tokens), 'token')} to {format_token_limit(config)}"
        f"{first}'{tokens[0][:60]}'."
    )


def format_token_limit(config: BiLMConfig) -> str:
    """Return the maximum length of a token for messages, such as "48 bytes"."""
    encoder = config.lexicon or config.char_cnn
    assert encoder is not None  # models that read words do not truncate them
    unit = "bytes" if config.lexicon is None else "characters"
    return f"{encoder.max_characters_per_token - 2} {unit}"
