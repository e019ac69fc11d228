"""Word senses in each layer: the nearest sense by cosine, as in the paper (Table 5).

A sense is the mean vector of its uses in SemCor. A word is assigned the sense with the nearest mean
among those of its lemma and part of speech that occur in SemCor. A lemma that does not occur there
is assigned the first sense of WordNet, and one that WordNet does not contain has no answer. The
vector of a multiword expression is the mean of its words. Keys that WordNet does not contain cannot
be correct; they are ignored and counted.

The mean of a mix of layers is the mix of their means, so all layer choices are computed from one
pass. Baselines: the first sense of WordNet, the most frequent sense of SemCor, and static vectors
of the word and of its sentence (the mean).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
from elmokit.probes.raganato import ALL, EvaluationSet, Instance, f1_score
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
# By way to choose a sense: the answers for the instances of each dataset.
Answers = dict[str, list[list[Answer]]]


@dataclass(frozen=True)
class WsdResult:
    """One way to choose senses.

    Attributes:
        name: A layer or a baseline.
        f1: F1 by dataset.
        interval: The 95% interval of F1 on the last dataset, by a bootstrap over sentences.
        by_pos: F1 on the last dataset by part of speech.
    """

    name: str
    f1: dict[str, float]
    interval: Interval
    by_pos: dict[str, float]


@dataclass(frozen=True)
class WsdReport:
    """All ways to choose senses.

    Attributes:
        instances: Words to disambiguate, by dataset.
        backed_off: Instances whose lemma is not in the training text, by dataset.
        unanswered: Instances that are not in WordNet either, by dataset.
        senses: Senses with a mean vector.
        uses: Words with a sense in the training text.
        alternatives: Uses with several senses.
        unknown: Annotated senses that are not in WordNet.
        static_unknown: Instances of the last dataset without a static vector; None: no static
            vectors.
        results: One for each way.
        difference: Layer 2 minus layer 1 on the last dataset, if both were measured.
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
        """Return a table with published figures."""
        sets = list(self.instances)
        has_all = sets[-1] == ALL
        rows = [["F1", *sets, "95%", *(("paper, ALL", "CoVe, ALL") if has_all else ())]]
        for r in self.results:
            low, high = r.interval
            row = [r.name, *(f"{100 * r.f1[name]:.1f}" for name in sets)]
            row.append(f"{100 * low:.1f}-{100 * high:.1f}")
            if has_all:
                published = WSD_LAYERS.get(r.name)
                row += ["", ""] if published is None else [f"{p:.1f}" for p in published]
            rows.append(row)
        for name, figures in WSD_SETS.items():
            if any(s in figures for s in sets):
                cells = [f"{figures[s]:.1f}" if s in figures else "" for s in sets]
                rows.append([f"published: {name}", *cells, *([""] * (3 if has_all else 1))])
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
    """Return the mean vector of the uses of each sense that WordNet contains.

    A use with alternatives counts fully for each of them.
    """
    keys = (key for s in sentences for span in s.spans for key in span.keys)
    rows = {key: row for row, key in enumerate(dict.fromkeys(k for k in keys if k in known))}
    counts = np.zeros(len(rows), dtype=np.int64)
    sums: FloatArray | None = None  # (S, R, D): contiguous by sense
    for sentence, layers in zip(sentences, readings, strict=True):
        if sums is None:
            sums = np.zeros((len(rows), layers.shape[0], layers.shape[2]), dtype=np.float32)
        for span in sentence.spans:
            places = [rows[key] for key in span.keys if key in rows]
            if places:
                sums[places] += layers[:, span.first : span.last].mean(axis=1)
                counts[places] += 1
    if sums is None or not rows:
        raise DataError(
            "No sense of the training data is in WordNet. Expected sense keys of WordNet 3.0."
        )
    sums /= counts[:, None, None]
    vectors: FloatArray = np.moveaxis(sums, 1, 0)
    return Centroids(rows, vectors, counts)


class Candidates:
    """The senses that a word may have: those in the training text, in WordNet's order.

    Attributes:
        met: The keys of each lemma and part of speech.
    """

    def __init__(self, keys: Iterable[str], wordnet: WordNet) -> None:
        self._wordnet = wordnet
        known = set(keys)
        entries = dict.fromkeys(entry_of(key) for key in known)
        self.met: dict[Entry, list[str]] = {
            entry: [key for key in wordnet.senses[entry] if key in known] for entry in entries
        }

    def choose(self, instance: Instance, best: Callable[[list[str]], int]) -> Answer:
        """Choose a sense with `best`; for an unseen lemma, the first sense of WordNet."""
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
    """Choose for each instance the sense with the nearest mean by cosine.

    Of equally near senses, the first in WordNet is chosen.

    Args:
        queries: The vectors of the instances, shape (n, D).
        instances: The instances.
        centroids: Unit vectors of senses, shape (S, D).
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
        sets: The test data; the last dataset is analyzed in more detail.
        wordnet: All senses.
        layer: The layers to compare, as for `LayerChoice.parse_all`.
        mix: With layer "mix", its weights.
        static: Static vectors to compare with.
        state: Initial state of each sentence.
        seed: Random seed for the bootstrap.
        progress: Callback for the number of tokens done.
    """
    if not sets:
        raise DataError("No test data: expected at least one dataset.")
    choices = LayerChoice.parse_all(layer, model.config.n_layers, mix)
    tagged = [sentence for sentence in training if sentence.spans]
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

    def most_used(keys: list[str]) -> int:
        return int(np.argmax(centroids.counts[[centroids.rows[key] for key in keys]]))

    answers: Answers = {
        FIRST_SENSE: [[wordnet.first(i.entry) for i in s.instances] for s in sets],
        FREQUENT_SENSE: [[candidates.choose(i, most_used) for i in s.instances] for s in sets],
    }
    static_unknown = None
    if static is not None:
        means = sense_centroids(_static(static, [s.words for s in tagged]), tagged, wordnet)
        queries = [_queries(_static(static, s.sentences), s) for s in sets]
        names = (f"{static.name}, the word", f"{static.name}, mean of the sentence")
        ways = dict(zip(names, LayerChoice.parse_all("all", 2), strict=True))
        answers |= _nearest(ways, queries, sets, means, candidates)
        static_unknown = int((~queries[-1][0].any(axis=1)).sum())
    queries = [_queries(read(s.sentences), s) for s in sets]
    ways = {choice.label: choice for choice in choices}
    answers |= _nearest(ways, queries, sets, centroids, candidates)
    spans = [span for s in tagged for span in s.spans]
    unmet = {s.name: [i.entry for i in s.instances if i.entry not in candidates.met] for s in sets}
    results, compared = _results(answers, sets, seed)
    return WsdReport(
        instances={s.name: len(s.instances) for s in sets},
        backed_off={s.name: len(unmet[s.name]) for s in sets},
        unanswered={s.name: sum(wordnet.first(e) is None for e in unmet[s.name]) for s in sets},
        senses=len(centroids.rows),
        uses=len(spans),
        alternatives=sum(len(span.keys) > 1 for span in spans),
        unknown=sum(key not in wordnet for span in spans for key in span.keys),
        static_unknown=static_unknown,
        results=results,
        difference=compared,
    )


def _queries(readings: Readings, evaluation: EvaluationSet) -> FloatArray:
    """Return the vectors of the instances of a dataset, shape (R, n, D)."""
    by_sentence: dict[int, list[Instance]] = {}
    for instance in evaluation.instances:
        by_sentence.setdefault(instance.sentence, []).append(instance)
    vectors = [
        layers[:, instance.first : instance.last].mean(axis=1)
        for number, layers in enumerate(readings)
        for instance in by_sentence.get(number, [])
    ]
    return np.stack(vectors, axis=1)


def _static(static: StaticVectors, sentences: Iterable[Sequence[str]]) -> Iterator[FloatArray]:
    """Yield static vectors in place of layers: of the words, and the mean of the sentence."""
    for words in sentences:
        vectors, _ = static.table(words)
        # The sum is the mean up to its length, which does not affect cosines.
        yield np.stack([vectors, np.broadcast_to(vectors.sum(axis=0), vectors.shape)])


def _nearest(
    ways: Mapping[str, LayerChoice],
    queries: Sequence[FloatArray],
    sets: Sequence[EvaluationSet],
    centroids: Centroids,
    candidates: Candidates,
) -> Answers:
    """Return the nearest senses by each layer choice."""
    answers = {}
    for name, choice in ways.items():
        means = unit(choice.apply(centroids.vectors))
        answers[name] = [
            nearest_senses(choice.apply(q), s.instances, means, centroids.rows, candidates)
            for q, s in zip(queries, sets, strict=True)
        ]
    return answers


def _results(
    answers: Answers, sets: Sequence[EvaluationSet], seed: int
) -> tuple[tuple[WsdResult, ...], Difference | None]:
    """Score the answers of each way, and compare two layers on the last dataset."""
    last = sets[-1].instances
    clusters = np.array([instance.sentence for instance in last])
    tags = [pos for pos, _ in Counter(instance.pos for instance in last).most_common()]
    # F1 = 2 right / (instances + answers): an instance without an answer counts as one half. All
    # ways answer the same instances.
    sizes = np.array([0.5 if answer is None else 1.0 for answer in answers[FIRST_SENSE][-1]])
    right: dict[str, NDArray[np.float64]] = {}
    results = []
    for name, given in answers.items():
        pairs = [
            list(zip(s.instances, own, strict=True)) for s, own in zip(sets, given, strict=True)
        ]
        right[name] = np.array([float(answer in i.gold) for i, answer in pairs[-1]])
        results.append(
            WsdResult(
                name,
                {s.name: f1_score(own) for s, own in zip(sets, pairs, strict=True)},
                clustered_interval(right[name], clusters, sizes=sizes, seed=seed),
                {pos: f1_score([pair for pair in pairs[-1] if pair[0].pos == pos]) for pos in tags},
            )
        )
    return tuple(results), difference(right, clusters, *COMPARED, sizes=sizes, seed=seed)
