"""Morphology in layer 0: do morphologically related words have similar vectors?

Layer 0 is computed from characters, so every word, even an unseen one, has a vector. Each pair
(word, related word, kind of relation) is measured in two ways:

    random pairs   Is the word nearer to its related word than to the related words of other pairs
                   of the same kind? Those words have similar endings, so a similar ending is not
                   enough.
    rank           What is the rank of the related word by cosine, among thousands of words?

The bundled list contains inflected, derived, compound, misspelled and made-up words. Look-alikes,
which are unrelated words with similar spelling ("desert" / "dessert"), are the control group: a
layer that ranks them as high as related words represents spelling, not meaning. Static vectors are
measured on the pairs for which they contain both words.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.model import ElmoModel
from elmokit.embed.static import StaticVectors
from elmokit.embed.vectors import FloatArray, normalize
from elmokit.errors import ConfigError, DataError
from elmokit.probes.reports import format_table
from elmokit.probes.statistics import area_under_curve
from elmokit.text.lines import read_lines
from elmokit.text.vocab import SPECIALS

#: The normalized vector of each word.
Table = dict[str, FloatArray]

VOCABULARY_WORDS = 20_000
_RANDOM_PER_PAIR = 50


class WordPair(NamedTuple):
    """Two words and how they are related."""

    word: str
    related: str
    kind: str = "related"


@dataclass(frozen=True)
class MorphologyResult:
    """Scores of the pairs of one kind.

    Attributes:
        pairs: Number of pairs.
        unknown: Number of pairs that were skipped because a word has no vector.
        cosine: Mean cosine of related words.
        random_cosine: Mean cosine of random pairs.
        auc: Probability that the cosine of related words is above that of a random pair.
        reciprocal_rank: Mean of 1 / rank of the related word.
        first: Fraction of related words with rank 1.
        in_ten: Fraction of related words with ranks 1 to 10.
    """

    pairs: int
    unknown: int
    cosine: float
    random_cosine: float
    auc: float
    reciprocal_rank: float
    first: float
    in_ten: float


@dataclass(frozen=True)
class MorphologyReport:
    """Scores by kind of relation, for layer 0 and for static vectors.

    Attributes:
        layer_0: The scores of layer 0 on all pairs.
        layer_0_known: The scores of layer 0 on the pairs of words that have static vectors; None
            without static vectors.
        static: The scores of static vectors; None without static vectors.
        vocabulary: Number of candidate words.
        ranks: The rank of each related word in layer 0, in the order of the pairs.
    """

    layer_0: dict[str, MorphologyResult]
    layer_0_known: dict[str, MorphologyResult] | None
    static: dict[str, MorphologyResult] | None
    vocabulary: int
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        """Return a table."""
        groups = {
            "layer 0": self.layer_0,
            "layer 0, pairs in the static vectors": self.layer_0_known or {},
            "static": self.static or {},
        }
        return format_table(
            [
                {"": f"{title}: {kind}", **asdict(result)}
                for title, results in groups.items()
                for kind, result in results.items()
            ]
        )


# ----------------------------------------------------------------------------------------- reading


def read_pairs(path: str | Path | None = None) -> list[WordPair]:
    """Read pairs: lines of a word, a related word and a kind of relation, separated by tabs.

    By default, read the bundled list. Empty lines and lines that begin with # are skipped. The
    default kind is "related".
    """
    path = path or Path(__file__).with_name("morphology.tsv")
    pairs = []
    for line in read_lines([path]):
        if line.text.startswith("#") or not line.text.strip():
            continue
        fields = [field.strip() for field in line.text.split("\t")]
        if len(fields) not in (2, 3) or not all(fields):
            raise line.error(
                f"found '{line.text:.60}', expected two words and an optional kind, separated "
                "by tabs."
            )
        if fields[0] == fields[1]:
            raise line.error(f"'{fields[0]}' is paired with itself; expected two different words.")
        pairs.append(WordPair(*fields))
    if not pairs:
        raise DataError(
            f"{path} contains no pairs. Expected lines of two words and an optional kind, "
            "separated by tabs."
        )
    return pairs


def read_words(path: str | Path, n: int = VOCABULARY_WORDS) -> list[str]:
    """Read up to n distinct candidate words: the first column of each line."""
    lines = (line.text.split() for line in read_lines([path]))
    words = _distinct((fields[0] for fields in lines if fields), n)
    if not words:
        raise DataError(f"{path} contains no words. Expected one word per line.")
    return words


def candidate_words(
    model: ElmoModel, static: StaticVectors | None = None, n: int = VOCABULARY_WORDS
) -> list[str]:
    """Return the n most frequent words of the model's vocabulary; without one, of `static`."""
    if model.vocabulary is not None:
        words: Iterable[str] = model.vocabulary.words
    elif static is not None:
        words = static.words
    else:
        raise ConfigError(
            f"The model {model.source} has no vocabulary that can provide candidate words. "
            "Specify a file with one word per line (--words FILE) or static vectors (--static)."
        )
    return _distinct((w for w in words if w not in SPECIALS and any(c.isalpha() for c in w)), n)


def _distinct(words: Iterable[str], n: int) -> list[str]:
    """Return the first n distinct words, ignoring case."""
    distinct: dict[str, str] = {}
    for word in words:
        distinct.setdefault(word.casefold(), word)
        if len(distinct) == n:
            break
    return list(distinct.values())


# ---------------------------------------------------------------------------------------- measuring


def measure_morphology(
    model: ElmoModel,
    pairs: Sequence[WordPair],
    vocabulary: Sequence[str],
    *,
    static: StaticVectors | None = None,
    seed: int = 0,
) -> MorphologyReport:
    """Measure how similar related words are in layer 0.

    Args:
        model: The model.
        pairs: The pairs of related words.
        vocabulary: The candidate words among which each related word is ranked. The two words of
            the pair are skipped, ignoring case.
        static: Static vectors for comparison. In the comparison, only candidates that have static
            vectors are ranked.
        seed: Random seed for the random pairs.
    """
    words = list(dict.fromkeys([*vocabulary, *(word for pair in pairs for word in pair[:2])]))
    table = dict(zip(words, layer_0(model, words), strict=True))
    results, ranks = _measure(pairs, table, vocabulary, seed)
    known_results = static_results = None
    if static is not None:
        static_table = {word: normalize(static.vector(word)) for word in words if word in static}
        known = [p for p in pairs if p.word in static_table and p.related in static_table]
        shared = [word for word in vocabulary if word in static_table]
        known_results, _ = _measure(known, table, shared, seed)
        static_results, _ = _measure(pairs, static_table, shared, seed)
    return MorphologyReport(results, known_results, static_results, len(vocabulary), tuple(ranks))


def layer_0(model: ElmoModel, words: Sequence[str]) -> FloatArray:
    """Return the normalized x_k of words, shape (n, D); h_{k,0} is [x_k; x_k]."""
    return normalize(model.encode_words(words))


def _measure(
    pairs: Sequence[WordPair], table: Table, vocabulary: Sequence[str], seed: int
) -> tuple[dict[str, MorphologyResult], list[int]]:
    """Return the scores of each kind, and the rank of each pair that has vectors."""
    known = [pair for pair in pairs if pair.word in table and pair.related in table]
    cosines = np.array([float(table[p.word] @ table[p.related]) for p in known])
    ranks = np.array(_ranks(known, cosines, table, vocabulary))
    rng = np.random.default_rng(seed)
    random_cosines = [_random_cosines(pair, known, table, rng) for pair in known]
    results = {}
    for kind in dict.fromkeys(pair.kind for pair in known):
        indices = [i for i, pair in enumerate(known) if pair.kind == kind]
        random = np.concatenate([random_cosines[i] for i in indices])
        results[kind] = MorphologyResult(
            pairs=len(indices),
            unknown=sum(pair.kind == kind for pair in pairs) - len(indices),
            cosine=float(cosines[indices].mean()),
            random_cosine=float(random.mean()) if random.size else float("nan"),
            auc=area_under_curve(cosines[indices], random),
            reciprocal_rank=float((1 / ranks[indices]).mean()),
            first=float((ranks[indices] == 1).mean()),
            in_ten=float((ranks[indices] <= 10).mean()),
        )
    return results, ranks.tolist()


def _random_cosines(
    pair: WordPair, pairs: Sequence[WordPair], table: Table, rng: np.random.Generator
) -> list[float]:
    """Return the cosines of a word with randomly drawn related words of other pairs of its kind."""
    others = [
        p.related
        for p in pairs
        if p.kind == pair.kind and pair.word not in p[:2] and p.related != pair.related
    ]
    if not others:
        return []
    sample = rng.integers(len(others), size=_RANDOM_PER_PAIR)
    return [float(table[pair.word] @ table[others[i]]) for i in sample]


def _ranks(
    pairs: Sequence[WordPair],
    cosines: NDArray[np.float64],
    table: Table,
    vocabulary: Sequence[str],
) -> list[int]:
    """Return the rank of each related word among the candidate words, by cosine."""
    if not vocabulary:
        return [1] * len(pairs)
    matrix = np.stack([table[word] for word in vocabulary])
    folded = np.array([word.casefold() for word in vocabulary])
    ranks = []
    for pair, cosine in zip(pairs, cosines, strict=True):
        is_other = (folded != pair.word.casefold()) & (folded != pair.related.casefold())
        above = matrix @ table[pair.word] >= cosine - 1e-6
        ranks.append(1 + int((above & is_other).sum()))
    return ranks
