"""What each layer knows of word senses: the nearest sense by cosine, as in the paper (Table 5).

A sense is the mean vector of its uses in SemCor. A word to disambiguate gets, among the senses of
its lemma and part of speech that were met there, the one whose mean is nearest; a lemma that was
never met gets the first sense of WordNet, one that WordNet does not know either gets no answer. A
use or word of several parts is the mean of their vectors. Keys that WordNet does not list cannot be
right and are left out and counted.

The mean of a mix of layers is the mix of their means, so that the layers are read once and serve
for all layers. Beside the layers stand the first sense of WordNet, the most frequent sense of
SemCor, and static vectors: of the word alone, and the mean of its sentence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from elmokit.embed.cosine import unit
from elmokit.embed.layer_choice import ALL_AND_AVERAGE, LayerChoice, Layers
from elmokit.embed.model import ElmoModel
from elmokit.embed.static import StaticVectors
from elmokit.embed.vectors import FloatArray
from elmokit.errors import DataError
from elmokit.probes.published import WSD_LAYERS, WSD_SETS, WSD_SOURCE
from elmokit.probes.raganato import ALL, EvaluationSet, Instance, right_share, score
from elmokit.probes.senses import Entry, SenseSentence, entry_of
from elmokit.probes.statistics import Difference, Interval, clustered_interval, difference
from elmokit.probes.tables import aligned
from elmokit.probes.wordnet import WordNet
from elmokit.progress import ProgressFn, no_log

COMPARED = ("layer 2", "layer 1")
FIRST_SENSE = "first sense of WordNet"
FREQUENT_SENSE = "most frequent sense of SemCor"
# The layers of some sentences, one array (R, T, D) each; R = L + 1 for a model.
Readings = Iterable[FloatArray]
Answer = str | None


@dataclass(frozen=True)
class WsdResult:
    """One way to choose senses.

    Attributes:
        name: A layer, or what it is compared with.
        f1: F1 by set.
        interval: The 95% interval of the F1 of the last set, by a bootstrap over sentences.
        by_pos: F1 on the last set by part of speech.
    """

    name: str
    f1: dict[str, float]
    interval: Interval
    by_pos: dict[str, float]


@dataclass(frozen=True)
class WsdReport:
    """All ways to choose senses.

    Attributes:
        instances: Words to disambiguate, by set.
        backed_off: Those of lemmas that are not in the training text, by set.
        unanswered: Those that WordNet does not know either, by set.
        senses: Senses with a mean vector.
        uses: Words with a sense in the training text.
        alternatives: Those with several senses.
        unknown: Senses given to words that WordNet does not list.
        static_unknown: Instances of the last set without a static vector; None without those.
        results: One for each way.
        difference: Layer 2 against layer 1 on the last set, if both are there.
    """

    instances: dict[str, int]
    backed_off: dict[str, int]
    unanswered: dict[str, int]
    senses: int
    uses: int
    alternatives: int
    unknown: int
    static_unknown: int | None
    results: tuple[WsdResult, ...]
    difference: Difference | None

    def __str__(self) -> str:
        """Return a table, published figures beside and below ours."""
        sets = list(self.instances)
        whole = sets[-1] == ALL
        rows = [["F1", *sets, "95%", *(("paper, ALL", "CoVe, ALL") if whole else ())]]
        for r in self.results:
            low, high = r.interval
            row = [r.name, *(f"{100 * r.f1[name]:.1f}" for name in sets)]
            row.append(f"{100 * low:.1f}-{100 * high:.1f}")
            if whole:
                published = WSD_LAYERS.get(r.name)
                row += ["", ""] if published is None else [f"{p:.1f}" for p in published]
            rows.append(row)
        for name, figures in WSD_SETS.items():
            if any(s in figures for s in sets):
                cells = [f"{figures[s]:.1f}" if s in figures else "" for s in sets]
                rows.append([f"published: {name}", *cells, *([""] * (3 if whole else 1))])
        lines = [aligned(rows)]
        if self.difference is not None:
            lines.append(f"{self.difference}; in the paper +1.60")
        return "\n".join([*lines, f"published: {WSD_SOURCE}"])


# ------------------------------------------------------------------------------------------- senses


class Centroids(NamedTuple):
    """The mean vectors of senses.

    Attributes:
        rows: Sense key -> its row.
        vectors: Shape (R, S, D): per layer, one row per sense.
        counts: Uses of each sense, shape (S,).
    """

    rows: dict[str, int]
    vectors: FloatArray
    counts: NDArray[np.int64]


def sense_centroids(
    readings: Readings, sentences: Sequence[SenseSentence], known: WordNet
) -> Centroids:
    """Return the mean vector of the uses of each sense that WordNet lists.

    A use with alternatives counts in full for each of them.
    """
    keys = (key for s in sentences for stretch in s.stretches for key in stretch.keys)
    rows = {key: row for row, key in enumerate(dict.fromkeys(k for k in keys if k in known))}
    counts = np.zeros(len(rows), dtype=np.int64)
    sums: FloatArray | None = None  # (S, R, D): the layers of a sense lie together as it grows
    for sentence, layers in zip(sentences, readings, strict=True):
        if sums is None:
            sums = np.zeros((len(rows), layers.shape[0], layers.shape[2]), dtype=np.float32)
        for stretch in sentence.stretches:
            places = [rows[key] for key in stretch.keys if key in rows]
            if places:
                sums[places] += layers[:, stretch.first : stretch.last].mean(axis=1)
                counts[places] += 1
    if sums is None or not rows:
        raise DataError(
            "No sense of the training data is in WordNet. Expected sense keys of WordNet 3.0."
        )
    sums /= counts[:, None, None]
    vectors: FloatArray = np.moveaxis(sums, 1, 0)
    return Centroids(rows, vectors, counts)


class Candidates:
    """Which senses a word may have: those met in training, in WordNet's order.

    Attributes:
        met: The keys of each lemma and part of speech.
    """

    def __init__(self, keys: Iterable[str], wordnet: WordNet) -> None:
        self._wordnet = wordnet
        there = set(keys)
        entries = dict.fromkeys(entry_of(key) for key in there)
        self.met: dict[Entry, list[str]] = {
            entry: [key for key in wordnet.senses[entry] if key in there] for entry in entries
        }

    def choose(self, instance: Instance, best: Callable[[list[str]], int]) -> Answer:
        """Answer: `best` picks among several senses; one never met gets the first of WordNet."""
        keys = self.met.get(instance.entry)
        if keys is None:
            return self._wordnet.first(instance.entry)
        return keys[0] if len(keys) == 1 else keys[best(keys)]


def nearest_senses(
    queries: FloatArray,
    instances: Sequence[Instance],
    centroids: FloatArray,
    rows: dict[str, int],
    candidates: Candidates,
) -> list[Answer]:
    """Answer each instance with the sense whose mean is nearest by cosine.

    Of equally near ones the first of WordNet is taken.

    Args:
        queries: The vectors of the instances, shape (n, D).
        instances: The instances.
        centroids: Vectors of senses, shape (S, D), of length 1.
        rows: Sense key -> its row.
        candidates: The senses to choose among.
    """

    def best(query: FloatArray) -> Callable[[list[str]], int]:
        return lambda keys: int(np.argmax(centroids[[rows[key] for key in keys]] @ query))

    return [
        candidates.choose(instance, best(query))
        for instance, query in zip(instances, queries, strict=True)
    ]


# ---------------------------------------------------------------------------------------- measuring


def measure_wsd(
    model: ElmoModel,
    training: Sequence[SenseSentence],
    sets: Sequence[EvaluationSet],
    wordnet: WordNet,
    *,
    layer: Layers = ALL_AND_AVERAGE,
    mix: Sequence[float] | None = None,
    static: StaticVectors | None = None,
    state: Literal["reset", "warm"] = "reset",
    seed: int = 0,
    progress: ProgressFn = no_log,
) -> WsdReport:
    """Choose senses by the layers of a model.

    Args:
        model: The model.
        training: Sentences with senses.
        sets: What to disambiguate; the last one is looked at more closely.
        wordnet: The senses that there are.
        layer: The layers to compare, as for `LayerChoice.parse_all`.
        mix: With layer "mix", its weights.
        static: Static vectors to compare with.
        state: What each sentence starts from.
        seed: Of the bootstrap.
        progress: Called with how many tokens are read; sentences without senses are passed over.
    """
    choices = LayerChoice.parse_all(layer, model.config.n_layers, mix)
    tagged = [sentence for sentence in training if sentence.stretches]
    judge = _Judge(sets, seed)
    total = sum(len(s.words) for s in tagged) + sum(len(w) for s in sets for w in s.sentences)
    done = 0

    def read(sentences: Sequence[Sequence[str]]) -> Iterator[FloatArray]:
        nonlocal done
        for vectors in model.stream(sentences, state):
            yield vectors.layers
            done += len(vectors)
            progress("tokens", done, total)

    centroids = sense_centroids(read([s.words for s in tagged]), tagged, wordnet)
    candidates = Candidates(centroids.rows, wordnet)
    _judge_baselines(judge, sets, centroids, candidates, wordnet)
    static_unknown = None
    if static is not None:
        means = sense_centroids(_static(static, [s.words for s in tagged]), tagged, wordnet)
        queries = [_queries(_static(static, s.sentences), s) for s in sets]
        names = (f"{static.name}, the word", f"{static.name}, mean of the sentence")
        ways = zip(names, LayerChoice.parse_all("all", 2), strict=True)
        _judge_layers(judge, ways, queries, sets, means, candidates)
        static_unknown = int((~queries[-1][0].any(axis=1)).sum())
    queries = [_queries(read(s.sentences), s) for s in sets]
    named = [(choice.label, choice) for choice in choices]
    _judge_layers(judge, named, queries, sets, centroids, candidates)
    stretches = [stretch for s in tagged for stretch in s.stretches]
    unmet = {s.name: [i.entry for i in s.instances if i.entry not in candidates.met] for s in sets}
    return WsdReport(
        instances={s.name: len(s.instances) for s in sets},
        backed_off={s.name: len(unmet[s.name]) for s in sets},
        unanswered={s.name: sum(wordnet.first(e) is None for e in unmet[s.name]) for s in sets},
        senses=len(centroids.rows),
        uses=len(stretches),
        alternatives=sum(len(stretch.keys) > 1 for stretch in stretches),
        unknown=sum(key not in wordnet for stretch in stretches for key in stretch.keys),
        static_unknown=static_unknown,
        results=tuple(judge.results),
        difference=difference(judge.right, judge.clusters, *COMPARED, sizes=judge.sizes, seed=seed),
    )


def _queries(readings: Readings, evaluation: EvaluationSet) -> FloatArray:
    """Return the vectors of the instances of a set, shape (R, n, D)."""
    by_sentence: dict[int, list[Instance]] = {}
    for instance in evaluation.instances:
        by_sentence.setdefault(instance.sentence, []).append(instance)
    found: list[FloatArray] = []
    for number, layers in enumerate(readings):
        for instance in by_sentence.get(number, []):
            found.append(layers[:, instance.first : instance.last].mean(axis=1))
    return np.stack(found, axis=1)


def _static(static: StaticVectors, sentences: Iterable[Sequence[str]]) -> Iterator[FloatArray]:
    """Yield static vectors as if they were layers: those of the words, the mean of the sentence."""
    for words in sentences:
        vectors, _ = static.table(words)
        # The sum is the mean but for its length, which no cosine sees.
        yield np.stack([vectors, np.broadcast_to(vectors.sum(axis=0), vectors.shape)])


def _judge_layers(
    judge: _Judge,
    named: Iterable[tuple[str, LayerChoice]],
    queries: Sequence[FloatArray],
    sets: Sequence[EvaluationSet],
    centroids: Centroids,
    candidates: Candidates,
) -> None:
    for name, choice in named:
        means = unit(choice.apply(centroids.vectors))
        judge(
            name,
            [
                nearest_senses(choice.apply(q), s.instances, means, centroids.rows, candidates)
                for q, s in zip(queries, sets, strict=True)
            ],
        )


def _judge_baselines(
    judge: _Judge,
    sets: Sequence[EvaluationSet],
    centroids: Centroids,
    candidates: Candidates,
    wordnet: WordNet,
) -> None:
    def most_used(keys: list[str]) -> int:
        return int(np.argmax(centroids.counts[[centroids.rows[key] for key in keys]]))

    judge(FIRST_SENSE, [[wordnet.first(i.entry) for i in s.instances] for s in sets])
    judge(FREQUENT_SENSE, [[candidates.choose(i, most_used) for i in s.instances] for s in sets])


class _Judge:
    """Scores answers, and remembers how right each was in the last set."""

    def __init__(self, sets: Sequence[EvaluationSet], seed: int) -> None:
        if not sets:
            raise DataError("No test data: expected at least one dataset.")
        self._sets = sets
        self._seed = seed
        self.results: list[WsdResult] = []
        self.right: dict[str, NDArray[np.float64]] = {}
        self.clusters = np.array([i.sentence for i in sets[-1].instances])
        self.sizes: NDArray[np.float64] = np.ones(len(self.clusters))

    def __call__(self, name: str, answers: Sequence[Sequence[Answer]]) -> None:
        f1 = {s.name: f1_of(s.instances, a) for s, a in zip(self._sets, answers, strict=True)}
        last, given = self._sets[-1].instances, answers[-1]
        self.right[name] = np.array(
            [right_share([a] if a else [], i.gold) for i, a in zip(last, given, strict=True)]
        )
        # F1 = 2 right / (instances + answers): an instance without an answer counts by half.
        self.sizes = np.array([1.0 if a else 0.5 for a in given])
        by_pos = {
            pos: f1_of(
                [i for i in last if i.pos == pos],
                [a for i, a in zip(last, given, strict=True) if i.pos == pos],
            )
            for pos, _ in Counter(i.pos for i in last).most_common()
        }
        interval = clustered_interval(
            self.right[name], self.clusters, sizes=self.sizes, seed=self._seed
        )
        self.results.append(WsdResult(name, f1, interval, by_pos))


def f1_of(instances: Sequence[Instance], answers: Sequence[Answer]) -> float:
    """Return the F1 of answers, None being none, as Raganato et al. count it."""
    given = {i.name: [a] for i, a in zip(instances, answers, strict=True) if a is not None}
    return score(given, {i.name: i.gold for i in instances}).f1
