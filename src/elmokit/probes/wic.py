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
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

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
from elmokit.telling import TellProgress, silent
from elmokit.text.tokenize import tokenize

# Pairs whose sentences are embedded together; only their cosines are kept.
_PAIRS = 512
_KEYS = ("id", "lemma", "pos", "sentence1", "sentence2", "start1", "end1", "start2", "end2")


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
    answers: dict[str, bool] = {}
    for number, item in enumerate(_items(gold), start=1):
        _check_keys(item, ("id", "tag"), gold, number)
        if item["tag"] not in ("T", "F"):
            raise DataError(f"{gold}, item {number}: the tag is {item['tag']!r}, expected T or F.")
        answers[str(item["id"])] = item["tag"] == "T"
    pairs = []
    for number, item in enumerate(_items(data), start=1):
        _check_keys(item, _KEYS, data, number)
        name = str(item["id"])
        if name not in answers:
            raise DataError(f"{data}, item {number}: '{name}' has no answer in {gold}.")
        usages = (_usage(item, 1, data, number), _usage(item, 2, data, number))
        pairs.append(WicPair(name, str(item["lemma"]), str(item["pos"]), usages, answers[name]))
    if not pairs:
        raise DataError(f"{data} holds no pairs.")
    return pairs


def _items(path: Path) -> list[Any]:
    try:
        items = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise DataError(f"{path} does not exist; expected a file of MCL-WiC.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8; expected a JSON list of MCL-WiC.") from None
    except json.JSONDecodeError as error:
        raise DataError(
            f"{path}, line {error.lineno}: not JSON ({error.msg}). Expected a list of items as "
            "MCL-WiC has it."
        ) from None
    if not isinstance(items, list):
        raise DataError(f"{path} holds a {type(items).__name__}; expected a list of items.")
    return items


def _check_keys(item: Any, keys: Sequence[str], path: Path, number: int) -> None:
    missing = [key for key in keys if not isinstance(item, dict) or key not in item]
    if missing:
        raise DataError(
            f"{path}, item {number}: '{missing[0]}' is missing. Each item has {', '.join(keys)}."
        )


def _usage(item: dict[str, Any], which: int, path: Path, number: int) -> Usage:
    start, end = item[f"start{which}"], item[f"end{which}"]
    try:
        return Usage(str(item[f"sentence{which}"]), int(start), int(end))
    except (TypeError, ValueError):
        raise DataError(
            f"{path}, item {number}: start{which} and end{which} should be places of characters, "
            f"found {start!r} and {end!r}."
        ) from None


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
    progress: TellProgress = silent,
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
        progress: Told how many pairs are embedded.
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
        raise DataError("No pair has a token at the place it names; are these offsets characters?")
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
    progress: TellProgress,
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
