"""Word in context: does a word have the same sense in two sentences?

In each layer, the answer is "the same" if the cosine of the two vectors is above a threshold. The
lemmas are split into two fixed halves (by a hash of the lemma, see `assign_half`). The threshold is
chosen on one half and tested on the other, and vice versa, so that each pair is tested once, with a
threshold that was not chosen on its lemma. No other parameters are learned.

There are three baselines: whether the two word forms are equal ("play" and "plays" are not); the
static vectors of the words, which, like layer 0, depend only on the forms; and the mean static
vector of each sentence, which represents its topic.

Files are in the format of MCL-WiC (SemEval-2021 task 2): `NAME.data` and `NAME.gold`, both JSON.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, RootModel

from elmokit.embed.layer_choice import ALL_AND_AVERAGE, LayerChoice, Layers
from elmokit.embed.model import ElmoModel
from elmokit.embed.static import StaticVectors
from elmokit.embed.vectors import FloatArray, cosines
from elmokit.errors import DataError
from elmokit.probes.reports import format_table
from elmokit.probes.statistics import (
    Interval,
    area_under_curve,
    best_threshold,
    clustered_interval,
)
from elmokit.probes.vectors import model_layers, span_vectors, static_choices, static_layers
from elmokit.progress import ProgressFn, no_log
from elmokit.text.lines import check_files, read_lines
from elmokit.text.tokenize import tokenize
from elmokit.text.typed_json import M, parse_json

_EXPECTED = "Expected an MCL-WiC file: a JSON list of items."


class WicPair(BaseModel, coerce_numbers_to_str=True):
    """Two uses of a lemma, at characters start, ..., end - 1, and whether they have the same sense.

    The fields are named as in the file.
    """

    id: str
    lemma: str
    pos: str
    sentence1: str
    sentence2: str
    start1: int
    end1: int
    start2: int
    end2: int
    same: bool = False


class Target(NamedTuple):
    """A tokenized sentence, in which `tokens[start:end]` is the target word."""

    tokens: tuple[str, ...]
    start: int
    end: int

    @property
    def words(self) -> tuple[str, ...]:
        """The case-folded tokens of the target word."""
        return tuple(token.casefold() for token in self.tokens[self.start : self.end])


@dataclass(frozen=True)
class Separation:
    """How well a score separates pairs with the same sense from pairs with different senses.

    Attributes:
        n: Number of pairs.
        accuracy: Fraction of correct answers, with the threshold from the other half.
        interval: 95% confidence interval, bootstrapped over lemmas.
        auc: Probability that a pair with the same sense scores above a pair with different senses.
    """

    n: int
    accuracy: float
    interval: Interval
    auc: float


@dataclass(frozen=True)
class WicResult:
    """The results of one scoring method.

    Attributes:
        name: A layer or a baseline.
        overall: The separation of all pairs.
        by_pos: The separation of the pairs of each part of speech, with the same thresholds.
        thresholds: The thresholds chosen on half 0 (and used on half 1) and on half 1 (and used on
            half 0).
    """

    name: str
    overall: Separation
    by_pos: dict[str, Separation]
    thresholds: tuple[float, float]


@dataclass(frozen=True)
class WicReport:
    """The results of all scoring methods.

    Attributes:
        results: The results of each scoring method.
        pairs: Number of pairs in the data.
        lemmas: Number of distinct lemmas.
        left_out: Ids of the pairs that were skipped because no token overlaps one of the
            words.
    """

    results: tuple[WicResult, ...]
    pairs: int
    lemmas: int
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        """Return a table."""
        return format_table(
            [
                {
                    "": result.name,
                    "accuracy": result.overall.accuracy,
                    "95%": result.overall.interval,
                    "AUC": result.overall.auc,
                    **{
                        f"{pos} accuracy": separation.accuracy
                        for pos, separation in result.by_pos.items()
                    },
                }
                for result in self.results
            ]
        )


# ----------------------------------------------------------------------------------------- reading


def read_wic(data: str | Path, gold: str | Path | None = None) -> list[WicPair]:
    """Read the pairs of an MCL-WiC dataset.

    Args:
        data: The file of sentences, `NAME.data`.
        gold: The file of labels. Default: `NAME.gold` in the same directory.
    """
    data = Path(data)
    gold = data.with_suffix(".gold") if gold is None else Path(gold)
    check_files([data])
    if not gold.exists():
        raise DataError(
            f"The labels file {gold} does not exist. Specify it with --gold (in Python: gold=...)."
        )
    answers = {item.id: item.tag == "T" for item in _read(gold, RootModel[list[_Answer]]).root}
    pairs = _read(data, RootModel[list[WicPair]]).root
    for pair in pairs:
        if pair.id not in answers:
            raise DataError(
                f"{data}: the pair '{pair.id}' has no gold label in {gold}. Check that both files "
                "belong to the same dataset."
            )
        pair.same = answers[pair.id]
    if not pairs:
        raise DataError(f"{data} contains no pairs. {_EXPECTED}")
    return pairs


class _Answer(BaseModel, coerce_numbers_to_str=True):
    id: str
    tag: Literal["T", "F"]


def _read(path: Path, kind: type[M]) -> M:
    text = "\n".join(line.text for line in read_lines([path]))
    return parse_json(kind, text, str(path), _EXPECTED)


# -------------------------------------------------------------------------------------- measurement


def measure_wic(
    model: ElmoModel,
    pairs: Sequence[WicPair],
    *,
    layer: Layers = ALL_AND_AVERAGE,
    mix: Sequence[float] | None = None,
    static: StaticVectors | None = None,
    state: Literal["reset", "warm"] = "reset",
    seed: int = 0,
    progress: ProgressFn = no_log,
) -> WicReport:
    """Compare the layers of a model on pairs of uses of the same lemma.

    Args:
        model: The model.
        pairs: The data.
        layer: The layers to compare, as in `LayerChoice.parse_all`.
        mix: The weights of the layers, for layer "mix".
        static: Static vectors for comparison.
        state: Initial state of each sentence.
        seed: Random seed for the bootstrap.
        progress: Callback for the number of processed tokens.
    """
    choices = LayerChoice.parse_all(layer, model.config.n_layers, mix)
    used: list[WicPair] = []
    targets: list[Target] = []  # two per pair
    left_out: list[str] = []
    for pair in pairs:
        first = find_target(pair.sentence1, pair.start1, pair.end1)
        second = find_target(pair.sentence2, pair.start2, pair.end2)
        if first is None or second is None:
            left_out.append(pair.id)
        else:
            used.append(pair)
            targets += (first, second)
    if not used:
        raise DataError(
            "No pair has tokens at the offsets in the data. Expected offsets in characters, not "
            "bytes."
        )
    sentences = list(dict.fromkeys(target.tokens for target in targets))
    indices = {tokens: i for i, tokens in enumerate(sentences)}
    spans = [(indices[target.tokens], target.start, target.end) for target in targets]
    words = [target.words for target in targets]
    same_form = np.array([float(a == b) for a, b in zip(words[::2], words[1::2], strict=True)])
    scores = {"same form": same_form}
    if static is not None:
        vectors = span_vectors(static_layers(static, sentences), spans)
        scores |= _cosines(vectors, static_choices(static))
        name, known = f"{static.name}, the word", vectors[0].any(axis=1)
        # For words without a static vector, only the forms can be compared.
        scores[name] = np.where(known[::2] & known[1::2], scores[name], same_form)
    vectors = span_vectors(model_layers(model, sentences, state, progress), spans)
    scores |= _cosines(vectors, {choice.label: choice for choice in choices})
    return WicReport(
        tuple(evaluate(name, values, used, seed=seed) for name, values in scores.items()),
        pairs=len(pairs),
        lemmas=len({pair.lemma for pair in pairs}),
        left_out=tuple(left_out),
    )


def find_target(sentence: str, start: int, end: int) -> Target | None:
    """Tokenize a sentence and find the tokens that overlap the characters start, ..., end - 1.

    Usually, one token consists of exactly these characters. Return None if no token overlaps them.
    """
    tokens = tokenize(sentence)
    overlapping = [i for i, token in enumerate(tokens) if token.start < end and token.end > start]
    if start >= end or not overlapping:
        return None
    return Target(tuple(token.text for token in tokens), overlapping[0], overlapping[-1] + 1)


def _cosines(
    vectors: FloatArray, choices: Mapping[str, LayerChoice]
) -> dict[str, NDArray[np.float64]]:
    """Return the cosine of each pair for each layer choice; `vectors` is (R, 2n, D)."""
    a, b = vectors[:, ::2], vectors[:, 1::2]
    return {
        name: cosines(choice.apply(a), choice.apply(b)).astype(np.float64)
        for name, choice in choices.items()
    }


# --------------------------------------------------------------------------------------- evaluation


def assign_half(lemma: str) -> int:
    """Return the half to which a lemma belongs, 0 or 1: the lowest bit of its BLAKE2b digest."""
    return hashlib.blake2b(lemma.lower().encode(), digest_size=8).digest()[-1] & 1


def evaluate(
    name: str, scores: NDArray[np.float64], pairs: Sequence[WicPair], *, seed: int = 0
) -> WicResult:
    """Evaluate the scores of pairs; the module docstring describes the two halves."""
    # Because of rounding errors, the cosine of equal vectors may differ from 1.
    scores = np.round(scores, 6)
    same = np.array([pair.same for pair in pairs])
    half = np.array([assign_half(pair.lemma) for pair in pairs])
    thresholds = tuple(best_threshold(scores[half == h], same[half == h]) for h in (0, 1))
    correct = (scores >= np.where(half == 0, thresholds[1], thresholds[0])) == same
    lemmas = np.array([pair.lemma for pair in pairs])
    pos = np.array([pair.pos for pair in pairs])

    def measure(selected: NDArray[np.bool_]) -> Separation:
        return Separation(
            int(selected.sum()),
            float(correct[selected].mean()),
            clustered_interval(correct[selected], lemmas[selected], seed=seed),
            area_under_curve(scores[selected & same], scores[selected & ~same]),
        )

    return WicResult(
        name,
        measure(np.ones(len(pairs), dtype=bool)),
        {str(p): measure(pos == p) for p, _ in Counter(pos.tolist()).most_common()},
        (thresholds[0], thresholds[1]),
    )
