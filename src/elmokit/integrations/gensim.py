"""One vector per word, as gensim's `KeyedVectors`, for its searches, analogies and file formats.

layer_zero    layer 0 of words, which is independent of context
averaged      the mean of the vectors of all uses of a word in a corpus
to_keyed      static vectors (see `elmokit.embed.static`) as `KeyedVectors`
from_keyed    `KeyedVectors` as static vectors; gensim also reads word2vec's binary files
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from elmokit.embed.layer_choice import LayerChoice
from elmokit.embed.model import ElmoModel
from elmokit.embed.static import StaticVectors
from elmokit.embed.tokenized import as_tokens
from elmokit.embed.vectors import FloatArray
from elmokit.errors import ConfigError, DataError, optional_imports
from elmokit.settings import Count, validate
from elmokit.text.lines import read_lines

with optional_imports("gensim", "KeyedVectors"):
    from gensim.models import KeyedVectors

Corpus = str | Path | Iterable[str] | Iterable[Sequence[str]]


def layer_zero(elmo: ElmoModel, words: Iterable[str]) -> KeyedVectors:
    """Return layer 0 of words, h_{k,0} = [x_k; x_k]: words with similar spelling are near.

    Args:
        elmo: The model.
        words: The words; duplicates are removed.
    """
    chosen = list(dict.fromkeys(words))
    if not chosen:
        raise DataError("The list of words is empty. Pass at least one word.")
    as_tokens(chosen, 0)  # checks that they are strings
    return _keyed(chosen, np.tile(elmo.encode_words(chosen), 2))


def averaged(
    elmo: ElmoModel,
    sentences: Corpus,
    *,
    layer: str | int = "top",
    mix: Sequence[float] | None = None,
    gamma: float = 1.0,
    words: Iterable[str] | None = None,
    min_count: int = 5,
    max_words: int = 100_000,
) -> KeyedVectors:
    """Return the mean of each word's vectors over a corpus, which is read sentence by sentence.

    Memory depends on the number of words, not on the size of the corpus.

    Args:
        elmo: The model.
        sentences: Strings or lists of tokens, or a text file with one sentence per line. Without
            `words` they are read twice, first to count words, so they cannot be an iterator.
        layer: The vector of a token: a layer number, "top", "average", "concat" or "mix".
        mix: With "mix": the weights s, one per layer, not normalized.
        gamma: With "mix": the scale.
        words: The words to average; words that do not occur are omitted. Default: the most
            frequent words.
        min_count: Omit words that occur less often, because the mean of few uses is noisy.
        max_words: Maximum number of words; keeps the most frequent.

    Returns:
        The vectors, most frequent word first, with the attribute "count".
    """
    validate("min_count", min_count, Count)
    validate("max_words", max_words, Count)
    choice = LayerChoice.parse(layer, elmo.config.n_layers, mix, gamma, allow_all=False)
    chosen = _most_frequent(sentences, min_count, max_words) if words is None else list(words)
    places = {word: place for place, word in enumerate(dict.fromkeys(chosen))}
    counts = np.zeros(len(places), dtype=np.int64)
    sums = np.zeros((len(places), choice.dim(elmo.config.output_dim)))
    for vectors in elmo.stream(s for s in _tokenized(sentences) if not places.keys().isdisjoint(s)):
        uses = [(k, places[t]) for k, t in enumerate(vectors.tokens) if t in places]
        k, rows = (list(column) for column in zip(*uses, strict=True))
        np.add.at(sums, rows, choice.apply(vectors.layers)[k])
        np.add.at(counts, rows, 1)
    frequent = np.flatnonzero(counts >= min_count)
    if not len(frequent):
        raise DataError(
            f"No word occurs {min_count} times in these sentences. Add more text or reduce "
            "min_count."
        )
    frequent = frequent[np.argsort(-counts[frequent], kind="stable")]
    means = (sums[frequent] / counts[frequent, None]).astype(np.float32)
    names = list(places)
    keyed = _keyed([names[place] for place in frequent.tolist()], means)
    for word, count in zip(keyed.index_to_key, counts[frequent].tolist(), strict=True):
        keyed.set_vecattr(word, "count", count)
    return keyed


def to_keyed(table: StaticVectors) -> KeyedVectors:
    """Return static vectors as gensim's; of duplicate words, the first is used."""
    words = list(dict.fromkeys(table.words))
    return _keyed(words, table.table(words)[0])


def from_keyed(keyed: KeyedVectors, name: str = "gensim") -> StaticVectors:
    """Return gensim's vectors as static vectors, without copying them.

    Args:
        keyed: The vectors, for example `KeyedVectors.load_word2vec_format(path, binary=True)`.
        name: The name of the table in results.
    """
    return StaticVectors(name, list(keyed.index_to_key), keyed.vectors)


def _keyed(words: list[str], vectors: FloatArray) -> KeyedVectors:
    keyed = KeyedVectors(vector_size=vectors.shape[1], count=0, dtype=np.float32)
    keyed.add_vectors(words, vectors)
    return keyed


def _tokenized(sentences: Corpus) -> Iterator[list[str]]:
    if isinstance(sentences, str | Path):
        sentences = (line.text for line in read_lines([sentences]))
    for index, sentence in enumerate(sentences):
        yield as_tokens(sentence, index)[0]


def _most_frequent(sentences: Corpus, min_count: int, max_words: int) -> list[str]:
    if isinstance(sentences, Iterator):
        raise ConfigError(
            "The sentences are an iterator, but they are read twice: to count the words, then to "
            "average their vectors. Pass a list or a file, or specify the words."
        )
    counts: Counter[str] = Counter()
    for sentence in _tokenized(sentences):
        counts.update(sentence)
    return [word for word, count in counts.most_common(max_words) if count >= min_count]
