"""A token as 50 character ids: the bytes of its UTF-8 form between a begin and an end mark.

The ids are those of the original systems for prediction: they are shifted by one, so that 0 is
available for padding positions (a row of zeros).

    0          padding position: no token here
    1..256     UTF-8 byte b as b + 1
    257, 258   the "characters" of the sentence boundaries <S> and </S>
    259, 260   begin and end of a word
    261        padding inside a word, after its end mark (its embedding is learned and matters)

This module needs numpy but not torch, because ONNX models use it as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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

#: Rows of the character embedding in use, and those stored in a file (row 0 is always zero).
N_CHARACTERS = 262
N_STORED_CHARACTERS = 261


def token_bytes(token: str) -> bytes:
    """Return the UTF-8 bytes of a token, without lone surrogates, which cannot be encoded."""
    return token.encode("utf-8", "ignore")


def is_truncated(token: str, max_characters: int = 50) -> bool:
    """Return whether a token has more bytes than fit between the begin and end marks."""
    # Four bytes at most per character: skip the encoding for the many short tokens.
    limit = max_characters - 2
    return 4 * len(token) > limit and len(token_bytes(token)) > limit


def char_ids_table(tokens: Iterable[str], max_characters: int = 50) -> NDArray[np.int64]:
    """Return the ids of tokens: [begin, bytes..., end, pad...], truncated as in bilm-tf.

    The literal tokens `<S>` and `</S>` are the sentence boundaries, as in AllenNLP. A token is
    truncated after a number of bytes, possibly inside a character.

    Returns:
        Character ids, shape (number of tokens, max_characters).
    """
    given = list(tokens)
    # A boundary is one character; its id is set below.
    spelled = [
        b"." if token in _BOUNDARIES else token_bytes(token)[: max_characters - 2]
        for token in given
    ]
    lengths = np.fromiter(map(len, spelled), np.int64, len(spelled))
    letters = np.frombuffer(b"".join(spelled), np.uint8)
    rows = np.repeat(np.arange(len(given)), lengths)
    columns = np.arange(len(letters)) - np.repeat(np.cumsum(lengths) - lengths, lengths) + 1
    ids = np.full((len(given), max_characters), _PAD_CHAR, dtype=np.int64)
    ids[:, 0] = _BEGIN_WORD
    ids[rows, columns] = letters.astype(np.int64) + _BYTE_SHIFT
    ids[np.arange(len(given)), lengths + 1] = _END_WORD
    for boundary, character in _BOUNDARIES.items():
        if boundary in given:
            ids[[token == boundary for token in given], 1] = character
    return ids


def batch_ids(sentences: Sequence[Sequence[str]], max_characters: int = 50) -> NDArray[np.int64]:
    """Return the ids of a batch of tokenized sentences, padded with zero rows to the longest one.

    The sentence boundaries are not included; `elmokit.Elmo` adds them, `BiLM` does not.

    Returns:
        Character ids, a numpy array of shape (B, T, max_characters); convert it with
        `torch.from_numpy` for the modules.
    """
    check_token_lists(sentences)
    longest = max((len(sentence) for sentence in sentences), default=0)
    ids = np.full((len(sentences), longest, max_characters), PADDING_POSITION, dtype=np.int64)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)] = char_ids_table(sentence, max_characters)
    return ids


def check_token_lists(sentences: Sequence[Sequence[str]]) -> None:
    """Raise an error if sentences are not lists of tokens: a string is a sequence of letters."""
    for i, sentence in enumerate([sentences] if isinstance(sentences, str) else sentences):
        if isinstance(sentence, str):
            raise DataError(
                f"Sentence {i} is the string {sentence[:60]!r}; expected a list of tokens such as "
                f"{sentence.split()[:3]!r}. elmokit.tokenize splits a string into tokens."
            )
        for k, token in enumerate(sentence):
            if not isinstance(token, str):
                raise DataError(
                    f"Token {k} of sentence {i} has type {type(token).__name__} ({token!r:.40}); "
                    "expected a string."
                )


def spelled_length(ids: NDArray[np.int64], pad: int = _PAD_CHAR) -> NDArray[np.int64]:
    """Count the ids before the padding of each word, marks included.

    Args:
        ids: Character ids, shape (n, C).
        pad: The id of padding inside a word.
    """
    length: NDArray[np.int64] = (ids != pad).sum(axis=1)
    return length
