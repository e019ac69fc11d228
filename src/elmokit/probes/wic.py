"""Word in context: is a word used in the same sense in two sentences?

The cosine of the two tokens' vectors is the answer, layer by layer: "the same" if it is above a
threshold. The lemmas are cut into two fixed halves (by a digest of the lemma, see `half_of`); the
threshold is chosen on one half and tested on the other, then the other way round, so that each pair
is tested once, by a threshold that has not seen its lemma. Nothing else is learned.

Beside it stands what the words alone tell: static vectors and layer 0 know only how the two forms
differ ("play" / "plays"). The mean of the static vectors of each sentence knows its topic.

Files are those of MCL-WiC (SemEval-2021 task 2): `NAME.data` and `NAME.gold`, both JSON.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, TypeAdapter, ValidationError

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

# Pairs whose sentences are embedded together; only their cosines are kept.
_PAIRS = 512
_EXPECTED = "Expected an MCL-WiC file: a JSON list of items."

T = TypeVar("T")


@dataclass(frozen=True)
class Usage:
    """A word in a sentence: the characters start, ..., end - 1 of it."""

    sentence: str
    start: int
    end: int


@dataclass(frozen=True)
class WicPair:
    """Two usages of a lemma, and whether they have the same sense."""

    name: str
    lemma: str
    pos: str
    usages: tuple[Usage, Usage]
    same: bool


class Target(NamedTuple):
    """A usage in tokens: `tokens[first:last]` is the word."""

    tokens: tuple[str, ...]
    first: int
    last: int

    @property
    def words(self) -> tuple[str, ...]:
        """The tokens of the word, case made equal."""
        return tuple(token.casefold() for token in self.tokens[self.first : self.last])


@dataclass(frozen=True)
class Figure:
    """How well one score tells same from different.

    Attributes:
        n: Pairs tested.
        accuracy: Right answers, each by the threshold of the other half.
        interval: Its 95% interval, by a bootstrap over lemmas; None where it was not asked for.
        auc: How often a pair of the same sense scores above one of different senses.
    """

    n: int
    accuracy: float
    interval: Interval | None
    auc: float


@dataclass(frozen=True)
class WicResult:
    """One score on a whole data set.

    Attributes:
        name: A layer, or what it is compared with.
        overall: All pairs.
        by_pos: The pairs of each part of speech, by the same thresholds.
        thresholds: Chosen on half 0 (and used on half 1), chosen on half 1.
    """

    name: str
    overall: Figure
    by_pos: dict[str, Figure]
    thresholds: tuple[float, float]


@dataclass(frozen=True)
class WicReport:
    """All scores on a data set.

    Attributes:
        results: One for each way to score.
        pairs: Pairs in the data.
        lemmas: Different lemmas.
        halves: Pairs tested in half 0 and in half 1.
        fits: How the marked characters of both sentences fit our tokens, see `alignment`.
        left_out: Names of the pairs that have no token at the place given.
        static_unknown: Pairs with a word that the static vectors lack; None without them.
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
            whole = result.overall
            low, high = whole.interval or Interval(np.nan, np.nan)
            figures = [f"{whole.accuracy:.3f}", f"{low:.3f}-{high:.3f}", f"{whole.auc:.3f}"]
            by_pos = [f"{result.by_pos[p].accuracy:.3f}" for p in pos]
            rows.append([result.name, *figures, *by_pos])
        return aligned(rows)


# ----------------------------------------------------------------------------------------- reading


def read_wic(data: str | Path, gold: str | Path | None = None) -> list[WicPair]:
    """Read pairs of MCL-WiC.

    Args:
        data: The file of sentences, `NAME.data`.
        gold: The file of answers; None is `NAME.gold` beside it.
    """
    data = Path(data)
    gold = data.with_suffix(".gold") if gold is None else Path(gold)
    answers = {item.id: item.tag == "T" for item in _read(gold, _Answer)}
    pairs = []
    for item in _read(data, _Item):
        if item.id not in answers:
            raise DataError(f"{data}: '{item.id}' has no gold label in {gold}.")
        first = Usage(item.sentence1, item.start1, item.end1)
        second = Usage(item.sentence2, item.start2, item.end2)
        pairs.append(WicPair(item.id, item.lemma, item.pos, (first, second), answers[item.id]))
    if not pairs:
        raise DataError(f"{data} contains no pairs.")
    return pairs


class _Answer(BaseModel, coerce_numbers_to_str=True):
    id: str
    tag: Literal["T", "F"]


class _Item(BaseModel, coerce_numbers_to_str=True):
    id: str
    lemma: str
    pos: str
    sentence1: str
    sentence2: str
    start1: int
    end1: int
    start2: int
    end2: int


def _read(path: Path, kind: type[T]) -> list[T]:
    """Read a JSON list of items."""
    try:
        return TypeAdapter(list[kind]).validate_json(path.read_bytes())  # type: ignore[valid-type]
    except OSError as error:
        raise DataError(f"Cannot read {path}: {error.strerror}. {_EXPECTED}") from None
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        place = "".join(f", {'item' if type(at) is int else 'key'} {at}" for at in problem["loc"])
        raise DataError(f"{path}{place}: {problem['msg']}. {_EXPECTED}") from None


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
        state: What each sentence starts from.
        seed: Of the bootstrap.
        progress: Called with how many pairs are embedded.
    """
    choices = LayerChoice.parse_all(layer, model.config.n_layers, mix)
    fits: Counter[str] = Counter()
    used: list[WicPair] = []
    targets: list[tuple[Target, Target]] = []
    left_out: list[str] = []
    for pair in pairs:
        found = [_target(usage, fits) for usage in pair.usages]
        if found[0] is None or found[1] is None:
            left_out.append(pair.name)
        else:
            used.append(pair)
            targets.append((found[0], found[1]))
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
        tuple(judge(name, found, used, seed=seed) for name, found in scores.items()),
        pairs=len(pairs),
        lemmas=len({pair.lemma for pair in pairs}),
        halves=(halves.count(0), halves.count(1)),
        fits=dict(fits),
        left_out=tuple(left_out),
        static_unknown=unknown,
    )


def _target(usage: Usage, fits: Counter[str]) -> Target | None:
    tokens = tokenize(usage.sentence)
    place = align([(token.start, token.end) for token in tokens], usage.start, usage.end)
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
    """Return the cosine of each pair in each layer; each sentence is read once per block."""
    blocks: dict[str, list[FloatArray]] = {choice.label: [] for choice in choices}
    for begin in range(0, len(targets), _PAIRS):
        block = targets[begin : begin + _PAIRS]
        sentences = list(dict.fromkeys(usage.tokens for pair in block for usage in pair))
        layers, _ = model.compute(sentences, state)
        of = dict(zip(sentences, layers, strict=True))
        # R_k of the word, the mean over its tokens if it has several: (L + 1, 2D)
        a, b = (
            np.stack([of[p[i].tokens][:, p[i].first : p[i].last].mean(axis=1) for p in block], 1)
            for i in (0, 1)
        )
        for choice in choices:
            blocks[choice.label].append(cosines(choice.apply(a), choice.apply(b)))
        progress("pairs", begin + len(block), len(targets))
    return {name: np.concatenate(found).astype(np.float64) for name, found in blocks.items()}


def _static_scores(
    static: StaticVectors, targets: Sequence[tuple[Target, Target]]
) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
    """Return the cosines of the words, those of the mean of the sentences, and unknown pairs.

    A pair with a word that has no vector scores 1 if both are the same form and 0 if not: that is
    all there is to know about it without context.
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
    """Return the half, 0 or 1, a lemma belongs to: the lowest bit of its BLAKE2b digest."""
    return hashlib.blake2b(lemma.lower().encode(), digest_size=8).digest()[-1] & 1


def judge(
    name: str, scores: NDArray[np.float64], pairs: Sequence[WicPair], *, seed: int = 0
) -> WicResult:
    """Turn the scores of pairs into figures; see the head of this file for the two halves."""
    scores = np.round(scores, 6)  # the same form twice is 1, and not 1 less a rounding error
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
