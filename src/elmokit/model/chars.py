"""Convert each token to 50 character ids: its UTF-8 bytes between a begin and an end marker.

As in the original code, the ids are shifted by one, so that 0 is available for padding positions
(a row of zeros).

    0          padding position (no token)
    1..256     UTF-8 byte b as b + 1
    257, 258   the "characters" of the sentence boundaries <S> and </S>
    259, 260   begin and end of a word
    261        padding inside a word, after the end marker (with a learned embedding)

This module needs numpy but not torch, because ONNX models use it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from elmokit.errors import DataError

BEGIN_SENTENCE = "<S>"
END_SENTENCE = "</S>"

PADDING_POSITION = 0
_BYTE_SHIFT = 1
_BEGIN_SENTENCE_CHAR = 257
_END_SENTENCE_CHAR = 258
_BEGIN_WORD = 259
_END_WORD = 260
_PAD_CHAR = 261
_BOUNDARIES = {BEGIN_SENTENCE: _BEGIN_SENTENCE_CHAR, END_SENTENCE: _END_SENTENCE_CHAR}

#: Number of character embeddings, and number of stored ones (all except row 0, which is zero).
N_CHARACTERS = 262
N_STORED_CHARACTERS = 261


def token_bytes(token: str) -> bytes:
    """Encode a token in UTF-8. Lone surrogates, which UTF-8 cannot represent, are removed."""
    return token.encode("utf-8", "ignore")


def is_truncated(token: str, max_characters: int = 50) -> bool:
    """Return whether a token has more bytes than fit between the begin and end markers."""
    # A character has at most four bytes, so short tokens need not be encoded.
    limit = max_characters - 2
    return 4 * len(token) > limit and len(token_bytes(token)) > limit


def char_ids_table(tokens: Iterable[str], max_characters: int = 50) -> NDArray[np.int64]:
    """Return the ids of tokens: [begin, bytes..., end, pad...], truncated as in bilm-tf.

    As in AllenNLP, the tokens `<S>` and `</S>` are treated as sentence boundaries. A long token may
    be truncated inside a multi-byte character.

    Returns:
        Character ids, shape (number of tokens, max_characters).
    """
    tokens = list(tokens)
    # Each sentence boundary is encoded as one character, whose id is set below.
    encoded = [
        b"." if token in _BOUNDARIES else token_bytes(token)[: max_characters - 2]
        for token in tokens
    ]
    lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
    all_bytes = np.frombuffer(b"".join(encoded), np.uint8)
    rows = np.repeat(np.arange(len(tokens)), lengths)
    columns = np.arange(len(all_bytes)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
    ids = np.full((len(tokens), max_characters), _PAD_CHAR, dtype=np.int64)
    ids[:, 0] = _BEGIN_WORD
    ids[rows, columns] = all_bytes.astype(np.int64) + _BYTE_SHIFT
    ids[np.arange(len(tokens)), lengths + 1] = _END_WORD
    for boundary, character in _BOUNDARIES.items():
        if boundary in tokens:
            ids[[token == boundary for token in tokens], 1] = character
    return ids


def batch_ids(sentences: Sequence[Sequence[str]], max_characters: int = 50) -> NDArray[np.int64]:
    """Return the ids of tokenized sentences, padded with zeros to the length of the longest one.

    The sentence boundaries are not included. `elmokit.Elmo` adds them, but `BiLM` does not.

    Returns:
        Character ids, a NumPy array of shape (B, T, max_characters). To pass it to a module, use
        `torch.from_numpy`.
    """
    return padded_ids(sentences, max_characters, lambda s: char_ids_table(s, max_characters))


def padded_ids(
    sentences: Sequence[Sequence[str]],
    columns: int,
    token_ids: Callable[[Sequence[str]], NDArray[np.int64]],
) -> NDArray[np.int64]:
    """Return the ids of tokenized sentences, padded with zeros to the length of the longest one.

    Args:
        sentences: The sentences.
        columns: Number of ids per token.
        token_ids: Function that returns the ids of n tokens, shape (n, columns).
    """
    for i, sentence in enumerate([sentences] if isinstance(sentences, str) else sentences):
        if isinstance(sentence, str):
            raise DataError(
                f"Sentence {i} is the string {sentence[:60]!r}; expected a list of tokens such as "
                f"{sentence.split()[:3]!r}. elmokit.tokenize splits a string into tokens."
            )
        check_tokens(sentence, f"sentence {i}")
    longest = max((len(sentence) for sentence in sentences), default=0)
    ids = np.full((len(sentences), longest, columns), PADDING_POSITION, dtype=np.int64)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)] = token_ids(sentence)
    return ids


def check_tokens(tokens: Sequence[object], source: str) -> None:
    """Raise an error if a token is not a string. `source` describes the sentence."""
    for k, token in enumerate(tokens):
        if not isinstance(token, str):
            raise DataError(
                f"Token {k} of {source} has type {type(token).__name__} ({token!r:.40}); expected "
                "a string."
            )


def unpadded_length(ids: NDArray[np.int64], pad: int = _PAD_CHAR) -> NDArray[np.int64]:
    """Return the number of ids of each word, including the markers but not the padding.

    Args:
        ids: Character ids, shape (n, C).
        pad: The padding id inside words.
    """
    length: NDArray[np.int64] = (ids != pad).sum(axis=1)
    return length
