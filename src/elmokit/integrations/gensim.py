"""Compute one vector per word as `KeyedVectors`, for gensim's searches, analogies and file formats.

layer_zero    the layer 0 vectors of words, which do not depend on the context
averaged      the mean of a word's vectors over all its uses in a corpus
to_keyed      convert static vectors (see `elmokit.embed.static`) to `KeyedVectors`
from_keyed    convert `KeyedVectors` to static vectors
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
from elmokit.progress import plural
from elmokit.settings import Count, validate
from elmokit.text.lines import read_lines

with optional_imports("gensim", "KeyedVectors"):
    from gensim.models import KeyedVectors

Corpus = str | Path | Iterable[str] | Iterable[Sequence[str]]


def layer_zero(elmo: ElmoModel, words: Iterable[str]) -> KeyedVectors:
    """Return the layer 0 vectors of words, h_{k,0} = [x_k; x_k], which depend on the spelling.

    Args:
        elmo: The model.
        words: The words. Duplicates are removed.
    """
    selected = list(dict.fromkeys(words))
    if not selected:
        raise DataError("The list of words is empty. Pass at least one word.")
    as_tokens(selected, 0)  # raises an error if a word is not a string
    return _keyed(selected, np.tile(elmo.encode_words(selected), 2))


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
    """Return the mean of each word's vectors over a corpus.

    Memory usage depends on the number of distinct words, not on the size of the corpus.

    Args:
        elmo: The model.
        sentences: Strings or lists of tokens, or the path of a text file with one sentence per
            line. Unless `words` is set, must not be an iterator, because the corpus is read twice.
        layer: The vector of a token: a layer number, "top", "average", "concat" or "mix".
        mix: With layer "mix": the weights s, one per layer, not normalized.
        gamma: With layer "mix": the scale.
        words: The words whose vectors are averaged. Default: the most frequent words.
        min_count: Minimum number of occurrences of a word, because the mean of a few uses is noisy.
            Rarer words are omitted, even if they are in `words`.
        max_words: Maximum number of words, if `words` is not set. The most frequent words are kept.

    Returns:
        The vectors in decreasing order of word frequency. The vector attribute "count" contains the
        number of occurrences of each word.
    """
    validate("min_count", min_count, Count)
    validate("max_words", max_words, Count)
    choice = LayerChoice.parse(layer, elmo.config.n_layers, mix, gamma, allow_all=False)
    selected = _most_frequent(sentences, min_count, max_words) if words is None else list(words)
    index = {word: i for i, word in enumerate(dict.fromkeys(selected))}
    counts = np.zeros(len(index), dtype=np.int64)
    sums = np.zeros((len(index), choice.dim(elmo.config.output_dim)))
    for vectors in elmo.stream(s for s in _tokenized(sentences) if not index.keys().isdisjoint(s)):
        uses = [(k, index[t]) for k, t in enumerate(vectors.tokens) if t in index]
        positions, rows = (list(column) for column in zip(*uses, strict=True))
        np.add.at(sums, rows, choice.apply(vectors.layers)[positions])
        np.add.at(counts, rows, 1)
    frequent = np.flatnonzero(counts >= min_count)
    if not len(frequent):
        raise DataError(
            f"None of the words occurs at least {plural(min_count, 'time')} in these sentences. "
            "Add more text or reduce min_count."
        )
    frequent = frequent[np.argsort(-counts[frequent], kind="stable")]
    means = (sums[frequent] / counts[frequent, None]).astype(np.float32)
    names = list(index)
    keyed = _keyed([names[i] for i in frequent.tolist()], means)
    for word, count in zip(keyed.index_to_key, counts[frequent].tolist(), strict=True):
        keyed.set_vecattr(word, "count", count)
    return keyed


def to_keyed(table: StaticVectors) -> KeyedVectors:
    """Convert static vectors to `KeyedVectors`. For duplicate words, the first vector is used."""
    words = list(dict.fromkeys(table.words))
    return _keyed(words, table.look_up(words)[0])


def from_keyed(keyed: KeyedVectors, name: str = "gensim") -> StaticVectors:
    """Convert `KeyedVectors` to static vectors without copying them.

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
            "sentences is an iterator, but the corpus is read twice: to count the words, and to "
            "average their vectors. Pass a list or a file, or specify words."
        )
    counts: Counter[str] = Counter()
    for sentence in _tokenized(sentences):
        counts.update(sentence)
    return [word for word, count in counts.most_common(max_words) if count >= min_count]
