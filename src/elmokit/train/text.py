"""Convert plain text to ids for an existing model, and measure its perplexity.

The text is read as by `elmo prepare` (see `elmokit.data.reading`). Words of the model's vocabulary
get the ids from 0 to V-1, starting with the special symbols, and other words get higher ids. As
inputs, these words are encoded from their characters. As targets, they are `<UNK>`. To limit
memory, the text is processed in groups of complete documents.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from elmokit.data.counting import WordIds
from elmokit.data.layout import END_ID, RESERVED, UNKNOWN_ID
from elmokit.data.reading import Sentence
from elmokit.errors import ConfigError, DataError
from elmokit.model.bilm import BiLM
from elmokit.model.chars import char_ids_table
from elmokit.model.engine import Engine
from elmokit.model.lexicon_encoder import LexiconEncoder
from elmokit.model.lstm import LstmState
from elmokit.model.scoring import Scorer
from elmokit.text.vocab import SPECIALS, Vocabulary
from elmokit.train.evaluate import (
    Encode,
    LossSums,
    Perplexity,
    encoder_from,
    prepared_types,
    split_sequences,
)

# Minimum size of a group. Groups contain complete documents, because the backward LM starts at the
# end of a document.
_GROUP_TOKENS = 1 << 17


@dataclass(frozen=True)
class TextGroup:
    """Part of a text as ids.

    Attributes:
        tokens: The ids of the tokens, with `</S>` after each sentence.
        documents: The start of each document, and the end of the last one.
        words: The word of each id.
    """

    tokens: NDArray[np.uint32]
    documents: NDArray[np.int64]
    words: Sequence[str]

    def encoder(self, bilm: BiLM, engine: Engine, vocabulary: Vocabulary | None) -> Encode:
        """Return a function from ids of this group to x_k."""
        cnn = bilm.config.char_cnn

        def encoder_inputs(types: NDArray[np.int64]) -> NDArray[np.int64]:
            words = [self.words[number] for number in types.tolist()]
            if cnn is not None:
                return char_ids_table(words, cnn.max_characters_per_token)
            if isinstance(bilm.encoder, LexiconEncoder):
                return bilm.encoder.required_lexicon.token_ids(words)
            assert vocabulary is not None  # models with word input always have a vocabulary
            return np.array([vocabulary.index(word) + 1 for word in words], dtype=np.int64)

        return encoder_from(engine, encoder_inputs)


def text_groups(
    sentences: Iterable[Sentence],
    vocabulary: Vocabulary | None,
    *,
    whole_documents: bool = True,
    group_tokens: int | None = None,
) -> Iterator[TextGroup]:
    """Convert sentences to ids, in groups.

    Args:
        sentences: The text, see `elmokit.data.reading.read_sentences`.
        vocabulary: The vocabulary of the model, if it has one.
        whole_documents: Whether a group must contain complete documents.
        group_tokens: Approximate size of a group in tokens.
    """
    min_tokens = _GROUP_TOKENS if group_tokens is None else group_tokens
    words = [*SPECIALS, *(word for word in vocabulary or () if word not in SPECIALS)]
    ids = {word: number for number, word in enumerate(words)} | dict.fromkeys(RESERVED, UNKNOWN_ID)
    group = _GroupBuilder(words, ids)
    for sentence in sentences:
        is_new_document = sentence.document != group.document
        if len(group.tokens) >= min_tokens and (is_new_document or not whole_documents):
            yield group.build()
            group = _GroupBuilder(words, ids)
        group.add(sentence)
    if group.tokens:
        yield group.build()


class _GroupBuilder:
    """Builds a `TextGroup` from sentences."""

    def __init__(self, words: list[str], ids: dict[str, int]) -> None:
        self.tokens = array("I")
        self.document = -1
        self._starts: list[int] = []
        self._words = words
        self._ids = WordIds(ids, first=len(words))

    def add(self, sentence: Sentence) -> None:
        if sentence.document != self.document:
            self._starts.append(len(self.tokens))
            self.document = sentence.document
        self.tokens.extend(map(self._ids.__getitem__, sentence.words))
        self.tokens.append(END_ID)

    def build(self) -> TextGroup:
        return TextGroup(
            np.frombuffer(self.tokens, dtype=np.uint32),
            np.array([*self._starts, len(self.tokens)], dtype=np.int64),
            [*self._words, *self._ids.new_words()],
        )


def evaluate_text(
    bilm: BiLM,
    scorer: Scorer,
    vocabulary: Vocabulary,
    sentences: Iterable[Sentence],
    *,
    states: Sequence[str] = ("carry",),
    warm: LstmState | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> list[Perplexity]:
    """Measure the perplexity of a text.

    Args:
        bilm: The model.
        scorer: The language models of the model.
        vocabulary: The vocabulary of the head.
        sentences: The text, see `elmokit.data.reading.read_sentences`.
        states: The initial states to measure: "carry", "reset" or "warm".
        warm: The warm state, if `states` contains "warm".
        on_progress: Called with the number of predicted words so far.

    Returns:
        The perplexity for each of `states`.
    """
    vocabulary.require_specials()
    if vocabulary.words[: len(SPECIALS)] != SPECIALS:
        raise ConfigError(
            f"The vocabulary of the model begins with {' '.join(vocabulary.words[:3])}: expected "
            f"{' '.join(SPECIALS)}, as written by `elmo prepare`."
        )
    sums_by_state = [LossSums() for _ in states]
    for group in text_groups(sentences, vocabulary, whole_documents="carry" in states):
        types = prepared_types(group.encoder(bilm, scorer.engine, vocabulary), len(vocabulary))
        for state, sums in zip(states, sums_by_state, strict=True):
            sequences = split_sequences(group.tokens, group.documents, state)
            for _, losses in scorer.losses(types, sequences, warm if state == "warm" else None):
                sums.add(losses)
        if on_progress is not None:
            on_progress(sums_by_state[0].targets)
    if not sums_by_state[0].targets:
        raise DataError("The text contains no words. Expected files with text.")
    return [sums.perplexity(state) for state, sums in zip(states, sums_by_state, strict=True)]
