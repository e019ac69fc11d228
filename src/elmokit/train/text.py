"""Convert plain text to ids for an existing model, and measure the perplexity of the text.

The text is read in the same way as by `elmo prepare` (see `elmokit.data.reading`). Words in the
model's vocabulary get the ids 0 to V-1, starting with the special symbols, and other words get
higher ids. As inputs, the other words are encoded from their characters. As targets, they are
`<UNK>`. To limit memory usage, the text is processed in groups of sentences.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from elmokit.data.layout import END_ID, RESERVED, UNKNOWN_ID
from elmokit.data.reading import Sentence
from elmokit.data.tokenizing import WordIds
from elmokit.errors import ConfigError, DataError
from elmokit.model.bilm import BiLM
from elmokit.model.engine import Engine
from elmokit.model.lexicon import encoder_ids
from elmokit.model.lstm import LstmState
from elmokit.model.scoring import Scorer
from elmokit.text.vocab import SPECIALS, Vocabulary
from elmokit.train.evaluate import (
    Encode,
    LossSums,
    Perplexity,
    make_text_types,
    split_sequences,
)

# Minimum number of tokens in a group. If the state is carried over, groups contain complete
# documents, because the backward LM starts at the end of a document.
_GROUP_TOKENS = 1 << 17


@dataclass(frozen=True)
class TextGroup:
    """Part of a text, converted to ids.

    Attributes:
        tokens: The ids of the tokens, with `</S>` after each sentence.
        documents: The start of each document, and the end of the last one.
        words: The word of each id.
    """

    tokens: NDArray[np.uint32]
    documents: NDArray[np.int64]
    words: Sequence[str]

    def make_encoder(self, bilm: BiLM, engine: Engine, vocabulary: Vocabulary | None) -> Encode:
        """Return a function from ids of this group to x_k."""
        word_index = None if vocabulary is None else vocabulary.index

        def encode(types: NDArray[np.int64]) -> Tensor:
            words = [self.words[type_id] for type_id in types.tolist()]
            ids = encoder_ids(words, bilm.config, bilm.lexicon, word_index)
            return engine.encode(torch.from_numpy(ids))

        return encode


def group_sentences(
    sentences: Iterable[Sentence],
    vocabulary: Vocabulary | None,
    min_tokens: int,
    *,
    whole_documents: bool = True,
) -> Iterator[TextGroup]:
    """Convert sentences to ids, in groups.

    Args:
        sentences: The text; see `elmokit.data.reading.read_sentences`.
        vocabulary: The vocabulary of the model, if it has one.
        min_tokens: Minimum number of tokens in each group except the last one.
        whole_documents: Whether groups must consist of complete documents.
    """
    words = [*SPECIALS, *(word for word in vocabulary or () if word not in SPECIALS)]
    ids = {word: word_id for word_id, word in enumerate(words)}
    ids |= dict.fromkeys(RESERVED, UNKNOWN_ID)
    group: list[Sentence] = []
    n_tokens = 0
    for sentence in sentences:
        is_new_document = group and sentence.document != group[-1].document
        if n_tokens >= min_tokens and (is_new_document or not whole_documents):
            yield _make_group(group, words, ids)
            group, n_tokens = [], 0
        group.append(sentence)
        n_tokens += len(sentence.words) + 1
    if group:
        yield _make_group(group, words, ids)


def _make_group(sentences: list[Sentence], words: list[str], ids: dict[str, int]) -> TextGroup:
    group_ids = WordIds(ids, first=len(words))
    tokens = array("I")
    starts: list[int] = []
    document = -1
    for sentence in sentences:
        if sentence.document != document:
            starts.append(len(tokens))
            document = sentence.document
        tokens.extend(map(group_ids.__getitem__, sentence.words))
        tokens.append(END_ID)
    return TextGroup(
        np.frombuffer(tokens, dtype=np.uint32),
        np.array([*starts, len(tokens)], dtype=np.int64),
        [*words, *group_ids.new_words()],
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
        scorer: The scorer of the model.
        vocabulary: The vocabulary of the head.
        sentences: The text; see `elmokit.data.reading.read_sentences`.
        states: The initial states to evaluate: one or more of "carry", "reset" and "warm".
        warm: The warm state, if `states` contains "warm".
        on_progress: Called with the number of targets processed so far, per direction.

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
    carry = "carry" in states
    for group in group_sentences(sentences, vocabulary, _GROUP_TOKENS, whole_documents=carry):
        types = make_text_types(
            group.make_encoder(bilm, scorer.engine, vocabulary), len(vocabulary)
        )
        for state, sums in zip(states, sums_by_state, strict=True):
            sequences = split_sequences(group.tokens, group.documents, state)
            for _, losses in scorer.losses(types, sequences, warm if state == "warm" else None):
                sums.add(losses)
        if on_progress is not None:
            on_progress(sums_by_state[0].targets)
    if not sums_by_state[0].targets:
        raise DataError("The text contains no words. Expected at least one nonempty text file.")
    return [sums.perplexity(state) for state, sums in zip(states, sums_by_state, strict=True)]
