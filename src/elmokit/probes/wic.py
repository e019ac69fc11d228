"""Word in context: does a word have the same sense in two sentences?

In each layer, the answer is "the same" if the cosine of the two vectors is above a threshold. The
lemmas are split into two fixed halves (by a digest of the lemma, see `half_of`). The threshold is
chosen on one half and tested on the other, and vice versa, so that each pair is tested once, with a
threshold that does not depend on its lemma. Nothing else is learned.

Baselines without context: static vectors and layer 0 only know how the two forms differ ("play" /
"plays"). The mean of the static vectors of each sentence represents its topic.

Files are in the format of MCL-WiC (SemEval-2021 task 2): `NAME.data` and `NAME.gold`, both JSON.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, RootModel

from elmokit.embed.cosine import cosines
from elmokit.embed.layer_choice import ALL_AND_AVERAGE, LayerChoice, Layers
from elmokit.embed.model import ElmoModel
from elmokit.embed.static import StaticVectors
from elmokit.embed.vectors import FloatArray
from elmokit.errors import DataError
from elmokit.probes.alignment import align
from elmokit.probes.statistics import (
    Interval,
    area_under_curve,
    best_threshold,
    clustered_interval,
)
from elmokit.probes.tables import aligned
from elmokit.progress import ProgressFn, no_log
from elmokit.text.tokenize import tokenize
from elmokit.text.typed_json import M, parse_json

# Pairs per batch; only their cosines are stored.
_PAIRS = 512
_EXPECTED = "Expected an MCL-WiC file: a JSON list of items."


class WicPair(BaseModel, coerce_numbers_to_str=True):
    """Two usages of a lemma, at characters start, ..., end - 1, and whether the sense is the same.

    The names are those of the keys in the file.
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
    """A tokenized usage: `tokens[first:last]` is the word."""

    tokens: tuple[str, ...]
    first: int
    last: int

    @property
    def words(self) -> tuple[str, ...]:
        """The tokens of the word, case-folded."""
        return tuple(token.casefold() for token in self.tokens[self.first : self.last])


@dataclass(frozen=True)
class Figure:
    """How well a score separates same from different senses.

    Attributes:
        n: Pairs tested.
        accuracy: Fraction of correct answers, with the threshold of the other half.
        interval: Its 95% interval, by a bootstrap over lemmas; None: not computed.
        auc: How often a pair with the same sense scores above one with different senses.
    """

    n: int
    accuracy: float
    interval: Interval | None
    auc: float


@dataclass(frozen=True)
class WicResult:
    """One score on a dataset.

    Attributes:
        name: A layer or a baseline.
        overall: All pairs.
        by_pos: The pairs of each part of speech, with the same thresholds.
        thresholds: Chosen on half 0 (and used on half 1), chosen on half 1.
    """

    name: str
    overall: Figure
    by_pos: dict[str, Figure]
    thresholds: tuple[float, float]


@dataclass(frozen=True)
class WicReport:
    """All scores on a dataset.

    Attributes:
        results: One for each way to score.
        pairs: Pairs in the data.
        lemmas: Distinct lemmas.
        halves: Pairs tested in half 0 and in half 1.
        fits: How the marked characters of both sentences fit the tokens, see `alignment`.
        left_out: Names of the pairs without a token at the given offsets.
        static_unknown: Pairs with a word that has no static vector; None: no static vectors.
    """

    results: tuple[WicResult, ...]
    pairs: int
    lemmas: int
    halves: tuple[int, int]
    fits: dict[str, int]
    left_out: tuple[str, ...]
    static_unknown: int | None = None

    def __str__(self) -> str:
        """Return a table."""
        pos = list(self.results[0].by_pos)
        rows = [["", "accuracy", "95%", "AUC", *(f"{p} acc" for p in pos)]]
        for result in self.results:
            overall = result.overall
            low, high = overall.interval or Interval(np.nan, np.nan)
            figures = [f"{overall.accuracy:.3f}", f"{low:.3f}-{high:.3f}", f"{overall.auc:.3f}"]
            by_pos = [f"{result.by_pos[p].accuracy:.3f}" for p in pos]
            rows.append([result.name, *figures, *by_pos])
        return aligned(rows)


# ----------------------------------------------------------------------------------------- reading


def read_wic(data: str | Path, gold: str | Path | None = None) -> list[WicPair]:
    """Read pairs of MCL-WiC.

    Args:
        data: The file of sentences, `NAME.data`.
        gold: The file of answers. Default: `NAME.gold` in the same directory.
    """
    data = Path(data)
    gold = data.with_suffix(".gold") if gold is None else Path(gold)
    answers = {item.id: item.tag == "T" for item in _read(gold, _Answers).root}
    pairs = _read(data, _Pairs).root
    for pair in pairs:
        if pair.id not in answers:
            raise DataError(f"{data}: '{pair.id}' has no gold label in {gold}.")
        pair.same = answers[pair.id]
    if not pairs:
        raise DataError(f"{data} contains no pairs.")
    return pairs


class _Answer(BaseModel, coerce_numbers_to_str=True):
    id: str
    tag: Literal["T", "F"]


class _Answers(RootModel[list[_Answer]]):
    pass


class _Pairs(RootModel[list[WicPair]]):
    pass


def _read(path: Path, kind: type[M]) -> M:
    try:
        return parse_json(kind, path.read_bytes(), str(path), _EXPECTED)
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}. {_EXPECTED}") from None


# ---------------------------------------------------------------------------------------- measuring


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
    """Measure a model on pairs of usages.

    Args:
        model: The model.
        pairs: The data.
        layer: The layers to compare, as for `LayerChoice.parse_all`.
        mix: With layer "mix", its weights.
        static: Static vectors to compare with.
        state: Initial state of each sentence.
        seed: Random seed for the bootstrap.
        progress: Callback for the number of pairs done.
    """
    choices = LayerChoice.parse_all(layer, model.config.n_layers, mix)
    fits: Counter[str] = Counter()
    used: list[WicPair] = []
    targets: list[tuple[Target, Target]] = []
    left_out: list[str] = []
    for pair in pairs:
        first = _target(pair.sentence1, pair.start1, pair.end1, fits)
        second = _target(pair.sentence2, pair.start2, pair.end2, fits)
        if first is None or second is None:
            left_out.append(pair.id)
        else:
            used.append(pair)
            targets.append((first, second))
    if not used:
        raise DataError(
            "No pair has a token at its offsets. Offsets must count characters, not bytes."
        )
    scores = {"same form": np.array([float(a.words == b.words) for a, b in targets])}
    unknown = None
    if static is not None:
        words, sentences, unknown = _static_scores(static, targets)
        scores[f"{static.name}, the word"] = words
        scores[f"{static.name}, mean of the sentence"] = sentences
    scores |= _scores(model, targets, choices, state, progress)
    halves = [half_of(pair.lemma) for pair in used]
    return WicReport(
        tuple(judge(name, values, used, seed=seed) for name, values in scores.items()),
        pairs=len(pairs),
        lemmas=len({pair.lemma for pair in pairs}),
        halves=(halves.count(0), halves.count(1)),
        fits=dict(fits),
        left_out=tuple(left_out),
        static_unknown=unknown,
    )


def _target(sentence: str, start: int, end: int, fits: Counter[str]) -> Target | None:
    tokens = tokenize(sentence)
    place = align([(token.start, token.end) for token in tokens], start, end)
    fits[place.fit] += 1
    if place.fit == "none":
        return None
    return Target(tuple(token.text for token in tokens), place.first, place.last)


def _scores(
    model: ElmoModel,
    targets: Sequence[tuple[Target, Target]],
    choices: Sequence[LayerChoice],
    state: Literal["reset", "warm"],
    progress: ProgressFn,
) -> dict[str, NDArray[np.float64]]:
    """Return the cosine of each pair in each layer."""
    blocks: dict[str, list[FloatArray]] = {choice.label: [] for choice in choices}
    for begin in range(0, len(targets), _PAIRS):
        block = targets[begin : begin + _PAIRS]
        sentences = list(dict.fromkeys(usage.tokens for pair in block for usage in pair))
        layers = model.compute(sentences, state)
        of = dict(zip(sentences, layers, strict=True))
        # R_k of the word, the mean over its tokens if it has several: (L + 1, 2D)
        a, b = (
            np.stack([of[p[i].tokens][:, p[i].first : p[i].last].mean(axis=1) for p in block], 1)
            for i in (0, 1)
        )
        for choice in choices:
            blocks[choice.label].append(cosines(choice.apply(a), choice.apply(b)))
        progress("pairs", begin + len(block), len(targets))
    return {name: np.concatenate(parts).astype(np.float64) for name, parts in blocks.items()}


def _static_scores(
    static: StaticVectors, targets: Sequence[tuple[Target, Target]]
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Return the cosines of the words, those of the mean of the sentences, and unknown pairs.

    A pair with a word that has no vector scores 1 if both forms are the same, otherwise 0.
    """
    words, sentences, unknown = [], [], 0
    for a, b in targets:
        known = _cosine(static, a.words, b.words)
        unknown += known is None
        words.append(float(a.words == b.words) if known is None else known)
        sentences.append(_cosine(static, a.tokens, b.tokens) or 0.0)
    return np.array(words), np.array(sentences), unknown


def _cosine(static: StaticVectors, a: Sequence[str], b: Sequence[str]) -> float | None:
    one, two = static.mean(a), static.mean(b)
    return None if one is None or two is None else float(cosines(one[None], two[None])[0])


# ------------------------------------------------------------------------------------------ judging


def half_of(lemma: str) -> int:
    """Return the half of a lemma, 0 or 1: the lowest bit of its BLAKE2b digest."""
    return hashlib.blake2b(lemma.lower().encode(), digest_size=8).digest()[-1] & 1


def judge(
    name: str, scores: NDArray[np.float64], pairs: Sequence[WicPair], *, seed: int = 0
) -> WicResult:
    """Evaluate the scores of pairs; the module docstring describes the two halves."""
    scores = np.round(scores, 6)  # without rounding errors, the same form twice is 1
    same = np.array([pair.same for pair in pairs])
    half = np.array([half_of(pair.lemma) for pair in pairs])
    thresholds = tuple(best_threshold(scores[half == h], same[half == h]) for h in (0, 1))
    correct = (scores >= np.where(half == 0, thresholds[1], thresholds[0])) == same
    lemmas = np.array([pair.lemma for pair in pairs])
    pos = np.array([pair.pos for pair in pairs])

    def figure(chosen: NDArray[np.bool_], interval: Interval | None) -> Figure:
        auc = area_under_curve(scores[chosen & same], scores[chosen & ~same])
        return Figure(int(chosen.sum()), float(correct[chosen].mean()), interval, auc)

    return WicResult(
        name,
        figure(np.ones(len(pairs), dtype=bool), clustered_interval(correct, lemmas, seed=seed)),
        {str(p): figure(pos == p, None) for p, _ in Counter(pos.tolist()).most_common()},
        (thresholds[0], thresholds[1]),
    )
