"""Encode plain text for an existing model, as `elmo prepare` does with the model's vocabulary.

The text is read as `elmo prepare` reads it (`elmokit.data.reading`). Words of the model's
vocabulary have their ids, special symbols first; all others get higher ids, so an id >= V is
encoded by its characters as an input and is `<UNK>` as a target. Text of any length is processed in
groups of whole documents.
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
    Perplexity,
    Tally,
    encoder_from,
    prepared_types,
    split_sequences,
)

# Minimum size of a group. The backward LM reads a document from its end, so a group contains
# complete documents.
_GROUP_TOKENS = 1 << 17


@dataclass(frozen=True)
class TextGroup:
    """Some complete documents (or, if states are not carried, some sentences) as ids.

    Attributes:
        tokens: The ids, each sentence followed by that of `</S>`.
        documents: The start of each document, and the end of the last one.
        words: All words by their ids.
    """

    tokens: NDArray[np.uint32]
    documents: NDArray[np.int64]
    words: Sequence[str]

    def encoder(self, bilm: BiLM, engine: Engine, vocabulary: Vocabulary | None) -> Encode:
        """Return a function from types of this group to x_k."""
        cnn = bilm.config.char_cnn

        def spell(types: NDArray[np.int64]) -> NDArray[np.int64]:
            words = [self.words[number] for number in types.tolist()]
            if cnn is not None:
                return char_ids_table(words, cnn.max_characters_per_token)
            if isinstance(bilm.encoder, LexiconEncoder):
                return bilm.encoder.known.spell(words)
            assert vocabulary is not None  # a word-input model always has one
            return np.array([vocabulary.index(word) + 1 for word in words], dtype=np.int64)

        return encoder_from(engine, spell)


def text_groups(
    sentences: Iterable[Sentence],
    vocabulary: Vocabulary | None,
    *,
    whole_documents: bool = True,
    group_tokens: int | None = None,
) -> Iterator[TextGroup]:
    """Turn sentences into ids, group by group.

    Args:
        sentences: The text, see `elmokit.data.reading.read_sentences`.
        vocabulary: The model's words, if it has any.
        whole_documents: Never split a document.
        group_tokens: Approximate size of a group in tokens.
    """
    limit = _GROUP_TOKENS if group_tokens is None else group_tokens
    known = [*SPECIALS, *(word for word in vocabulary or () if word not in SPECIALS)]
    ids = {word: number for number, word in enumerate(known)} | dict.fromkeys(RESERVED, UNKNOWN_ID)
    group = _Group(known, ids)
    for sentence in sentences:
        new = sentence.document != group.document
        if len(group.tokens) >= limit and (new or not whole_documents):
            yield group.done()
            group = _Group(known, ids)
        group.add(sentence)
    if group.tokens:
        yield group.done()


class _Group:
    """Builds a group."""

    def __init__(self, known: list[str], ids: dict[str, int]) -> None:
        self.tokens = array("I")
        self.document = -1
        self._starts: list[int] = []
        self._known = known
        self._ids = WordIds(ids, first=len(known))

    def add(self, sentence: Sentence) -> None:
        if sentence.document != self.document:
            self._starts.append(len(self.tokens))
            self.document = sentence.document
        self.tokens.extend(map(self._ids.__getitem__, sentence.words))
        self.tokens.append(END_ID)

    def done(self) -> TextGroup:
        return TextGroup(
            np.frombuffer(self.tokens, dtype=np.uint32),
            np.array([*self._starts, len(self.tokens)], dtype=np.int64),
            [*self._known, *self._ids.new_words()],
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
    """Measure the perplexity of text, which is read once, in groups of documents.

    Args:
        bilm: The model.
        scorer: Its language models.
        vocabulary: The words of their head.
        sentences: The text, see `elmokit.data.reading.read_sentences`.
        states: The initial states to measure: "carry", "reset", "warm".
        warm: The initial state of "warm".
        on_progress: Called with the number of targets so far.

    Returns:
        The perplexity for each of `states`.
    """
    vocabulary.require_specials()
    if vocabulary.words[: len(SPECIALS)] != SPECIALS:
        raise ConfigError(
            f"The vocabulary of the model should begin with {', '.join(SPECIALS)}, as written by "
            f"`elmo prepare`; found {', '.join(vocabulary.words[: len(SPECIALS)])}."
        )
    tallies = [Tally() for _ in states]
    for group in text_groups(sentences, vocabulary, whole_documents="carry" in states):
        types = prepared_types(group.encoder(bilm, scorer.engine, vocabulary), len(vocabulary))
        for state, tally in zip(states, tallies, strict=True):
            units = split_sequences(group.tokens, group.documents, state)
            for _, losses in scorer.losses(types, units, warm if state == "warm" else None):
                tally.add(losses)
        if on_progress is not None:
            on_progress(tallies[0].targets)
    if not tallies[0].targets:
        raise DataError("The text contains no words. Expected files with text.")
    return [tally.perplexity(state) for state, tally in zip(states, tallies, strict=True)]
